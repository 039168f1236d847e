"""Asks one cluster, round after round: what is to be done there, what became of it, what its plan offers."""

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from schedd.client import Client, ClientError, Place, Refused
from schedd.client.answers import ClusterView
from schedd.federation.machine import Action, HandoverSeen, Offer
from schedd.federation.roof import Report, Roof
from schedd.federation.settings import ClusterSettings
from schedd.store import StoreError

__all__ = ["Peer", "client_of"]

_log = structlog.get_logger(__name__)
_OF_THE_JOB = ("invalid", "too-hard", "bad-request", "too-large")
"""Refusals that are about the job, and not about who asks or when."""
_ACTIONS = 60
"""Requests in one round: what is learnt of the cluster is not to wait for more."""
_AT_ONCE = 6
"""Of these, so many at once: the schedd keeps what came together in one go."""
_MOST = 200
"""Questions in one round."""


def client_of(settings: ClusterSettings, token: str) -> Client:
    """A client of the cluster's schedd. Raises ConfigError."""
    return Client(Place(settings.url, token, settings.cluster), timeout=settings.timeout)


class Peer(threading.Thread):
    """One cluster's thread. One that hangs holds up no other."""

    def __init__(self, name: str, roof: Roof, token: str, stopping: threading.Event) -> None:
        super().__init__(name=f"cluster {name}", daemon=True)
        self.cluster = name
        self._roof = roof
        self._settings = roof.settings.clusters[name]
        self._token = token
        self._stopping = stopping
        self._answers: dict[str, Offer] = {}
        self._generation = -1

    def run(self) -> None:
        """Rounds until it is to stop."""
        bell = self._roof.bells[self.cluster]
        while not self._stopping.is_set():
            bell.clear()
            try:
                self._roof.report(self.cluster, self.round())
            except Exception:
                _log.exception("a round failed", cluster=self.cluster)
            bell.wait(self._roof.settings.routing.poll)
            self._stopping.wait(0.05)

    def round(self) -> Report:
        """One round."""
        try:
            with client_of(self._settings, self._token) as client:
                return self._round(client)
        except Refused as error:
            return Report(
                error.detail if error.kind == "not-ready" else f"it refuses the federation: {error}"
            )
        except ClientError as error:
            return Report(str(error))

    def _round(self, client: Client) -> Report:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done in [pool.submit(self._alone, one) for one in self._roof.work(self.cluster)[:_ACTIONS]]:
                done.result()
        view = client.cluster()
        generation = view["generation"]
        if generation != self._generation:
            self._answers, self._generation = {}, generation
        away = _why_not(view)
        offers = {}
        for job, resources, queue, user in self._roof.questions(self.cluster)[:_MOST]:
            offers[job] = self._ask(client, resources, queue, user)
        seen = {one["handover"]: _seen(one) for one in client.handovers()}
        chosen = self._settings
        return Report(
            away=away,
            handovers=seen,
            offers=offers,
            cpus=view["cpus"] if chosen.discloses("power") else 0,
            counts=dict(view["jobs"]) if chosen.discloses("load") else {},  # type: ignore[arg-type]
            generation=generation,
        )

    def _alone(self, action: Action) -> None:
        with client_of(self._settings, self._token) as client:
            self._do(client, action)

    def _do(self, client: Client, action: Action) -> None:
        try:
            match action.kind:
                case "submit":
                    client.hand_over(action.handover, action.body or {})
                case "release":
                    client.let_run(action.handover)
                case "withdraw":
                    client.take_back(action.handover)
        except Refused as error:
            if action.kind == "submit" and error.kind in _OF_THE_JOB:
                try:
                    self._roof.refused(action, "; ".join(error.places) or error.detail)
                except StoreError as failed:
                    _log.error("the log cannot be written", why=str(failed))
            elif error.kind in ("not-now", "unknown-handover"):
                _log.info("not now", cluster=self.cluster, handover=action.handover, why=error.detail)
            else:
                raise

    def _ask(self, client: Client, resources: Mapping[str, str], queue: str, user: str) -> Offer:
        """What its plan says; the same question about the same plan is put once."""
        key = json.dumps([sorted(resources.items()), queue, user])
        if key not in self._answers:
            try:
                found: Any = client.what_if(resources=resources, queue=queue, owner=user)
                start = found.get("expected_start") or found["planned_start"]
                length = (found["planned_end"] or 0) - (found["planned_start"] or 0)
                end = start + length if start is not None else None
                self._answers[key] = Offer(start, end, found["why"], found["answer"] == "never")
            except Refused as error:
                if error.kind not in _OF_THE_JOB:
                    raise
                self._answers[key] = Offer(None, None, "; ".join(error.places) or error.detail, True)
        return self._answers[key]


def _why_not(view: ClusterView) -> str:
    """Why nothing is sent there now; empty where there is no reason."""
    if view["stale"]:
        return f"its plan may be out of date: {view['stale']}"
    if not view["nodes"]:
        return "its server was not read yet"
    if view["mode"] != "scheduler":
        return f"it starts no jobs by its plan: it is in {view['mode']} mode"
    return ""


def _seen(one: Any) -> HandoverSeen:
    return HandoverSeen(**{name: one[name] for name in HandoverSeen.__dataclass_fields__})
