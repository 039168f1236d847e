"""Worker for one cluster: sends pending requests, polls transfers, and queries the plan."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from schedd.client import Client, ClientError, Endpoint, Refused, Unreachable
from schedd.client.answers import ClusterView
from schedd.client.json_object import json_members
from schedd.federation.cluster_failures import describe_failure, describe_unusable
from schedd.federation.cluster_speed import scale_resources
from schedd.federation.cluster_summary import read_summary
from schedd.federation.licences import ClusterLicenceUse
from schedd.federation.routing.cluster_status import PlanOffer, TransferStatus
from schedd.federation.routing.decisions import TransferAction
from schedd.federation.routing.jobs import PlanQuestion
from schedd.federation.settings import MemberClusterSettings
from schedd.federation.state.federation_state import ClusterPollResult, FederationState
from schedd.parallel_calls import call_in_parallel
from schedd.store import StoreError
from schedd.supervision import ThreadedWork

_log = structlog.get_logger(__name__)
REFUSALS_OF_THE_JOB: Final = ("invalid", "bad-request", "too-large")
"""Kinds of refusals of a job that this cluster can never run."""
_OF_THE_JOB: Final = (*REFUSALS_OF_THE_JOB, "too-hard", "defect")
"""Kinds of refusals caused by the job itself. A question that took too long, or failed, may succeed later."""
_ACTIONS: Final = 60  # maximum requests in one round, so that polling is not delayed
_AT_ONCE: Final = 6  # maximum parallel requests; the schedd commits concurrent requests together
_SOON_S: Final = 0.25  # poll interval while a step is pending at the cluster
_AGAIN_S: Final = 3.0  # interval after which a request without visible effect is repeated
_LEND_S: Final = 30.0  # maximum interval between renewals of licence leases
_SUMMARY_S: Final = 30.0  # minimum interval between summaries for the page
_WHOLE_S: Final = 600.0  # interval between complete polls of all transfers

ClientFactory = Callable[[MemberClusterSettings, str], Client]


def connect_cluster(settings: MemberClusterSettings, token: str) -> Client:
    """Return a client of the cluster's schedd. Raises ConfigError."""
    return Client(Endpoint(settings.url, token, settings.cluster), timeout=settings.timeout)


class ClusterWorker(ThreadedWork):
    """Worker thread for one cluster. A hanging cluster delays no other cluster."""

    def __init__(
        self,
        name: str,
        federation: FederationState,
        token: str,
        stopping: threading.Event,
        connect: ClientFactory = connect_cluster,
    ) -> None:
        super().__init__(federation.supervisor, "exchange", cluster=name)
        self.cluster = name
        self._federation = federation
        self._settings = federation.settings.clusters[name]
        self._token = token
        self._stopping = stopping
        self._connect = connect
        self._client: Client | None = None
        self._sent_at: dict[tuple[str, str], float] = {}  # time of the last request, by (transfer, step)
        self._look_at = 0.0
        self._whole_at = self._lend_at = self._summary_at = 0.0
        self._after: tuple[int, int] | None = None  # generation and time of the last polled plan
        self._known = False  # whether the server was read completely, so that the plan's answers are valid
        self._last_failure = ""  # as in the log, which names the cluster's host
        self._unanswered: PlanQuestion | None = None  # the last question without any response

    def run(self) -> None:
        """Process the cluster in rounds until stopped."""
        wakeup = self._federation.wakeups[self.cluster]
        while not self._stopping.is_set():
            wakeup.clear()
            try:
                self.round()
            except BaseException:
                self._look_at = time.monotonic() + self._federation.settings.routing.poll
                raise
            wakeup.wait(max(0.0, self._look_at - time.monotonic()))
            self._stopping.wait(0.01)
        self._drop()

    def round(self) -> None:
        """One round: ask new questions, send pending requests, and poll if due."""
        poll = self._federation.settings.routing.poll
        try:
            self._answer_questions(self._federation.due_questions(self.cluster))
            acted = self._act()
            now = time.monotonic()
            if now >= self._look_at:
                self._poll()
                self._look_at = time.monotonic() + poll
            if acted or self._sent_at:
                self._look_at = min(self._look_at, now + min(poll, _SOON_S))
        except ClientError as error:
            self._handle_failure(error)

    def _handle_failure(self, error: ClientError) -> None:
        if str(error) != self._last_failure:
            self._last_failure = str(error)
            _log.info("a request to a cluster failed", cluster=self.cluster, why=self._last_failure)
        self._drop()
        self._after = None
        self._known = False
        self._sent_at.clear()
        self._federation.apply_report(self.cluster, ClusterPollResult(describe_failure(error)))
        self._look_at = time.monotonic() + self._federation.settings.routing.poll

    def _open(self) -> Client:
        if self._client is None:
            self._client = self._connect(self._settings, self._token)
        return self._client

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # ---- requests ----------------------------------------------------------------------------------

    def _act(self) -> bool:
        """Send pending requests. Return whether there were any."""
        now = time.monotonic()
        wanted = {(one.transfer, one.kind): one for one in self._federation.pending_actions(self.cluster)}
        self._sent_at = {name: at for name, at in self._sent_at.items() if name in wanted}
        for cluster, transfer in list(self._federation.repeated_refusals):
            if cluster == self.cluster and not any(transfer == name for name, _ in wanted):
                self._federation.repeated_refusals.pop((cluster, transfer), None)
        due = [name for name in wanted if now - self._sent_at.get(name, -_AGAIN_S) >= _AGAIN_S][:_ACTIONS]
        if len(due) == 1:
            self._perform(self._open(), wanted[due[0]])
        elif due:
            call_in_parallel(self._perform_separately, [wanted[name] for name in due], _AT_ONCE)
        self._sent_at |= dict.fromkeys(due, now)
        return bool(due)

    def _perform_separately(self, action: TransferAction) -> None:
        with self._connect(self._settings, self._token) as client:
            self._perform(client, action)

    def _perform(self, client: Client, action: TransferAction) -> None:
        try:
            match action.kind:
                case "submit":
                    client.submit_held(action.transfer, action.body or {})
                case "release":
                    client.release_transfer(action.transfer)
                case "withdraw":
                    client.withdraw_transfer(action.transfer)
            self._federation.repeated_refusals.pop((self.cluster, action.transfer), None)
        except Refused as error:
            if action.kind == "submit" and error.kind in _OF_THE_JOB:
                try:
                    self._federation.apply_refusal(action, "; ".join(error.places) or error.detail)
                except StoreError as failed:
                    _log.error("the log cannot be written", why=str(failed))
            elif error.kind in ("not-now", "unknown-transfer", "defect"):
                self._note_repeated_refusal(action, error.detail)
            else:
                raise

    def _note_repeated_refusal(self, action: TransferAction, why: str) -> None:
        """Report a request that is refused and repeated: to the owner, and once in the log."""
        known = self._federation.repeated_refusals
        words = f"{self.cluster} refuses to {action.kind} the job: {why}; the request is repeated"
        if known.get((self.cluster, action.transfer)) != words:
            known[self.cluster, action.transfer] = words
            name = action.transfer
            _log.warning("request refused, will be repeated", cluster=self.cluster, transfer=name, why=why)

    # ---- polling -----------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Poll the cluster's state and changed transfers, and repeat questions to a changed plan."""
        client, federation, chosen = self._open(), self._federation, self._settings
        before = federation.now
        view = client.cluster()
        generation = view.generation
        # The generation goes back when the cluster's database is restored from a backup.
        first = self._after is None or generation < self._after[0]
        whole = first or time.monotonic() >= self._whole_at
        # The response was made between the two moments.
        ahead = max(0, view.now - federation.now) - max(0, before - view.now)
        rows: list[Any] = []
        if whole:
            rows = list(client.job_transfers())
            self._whole_at = time.monotonic() + _WHOLE_S
        elif self._after is not None and self._after[0] != generation:
            rows = list(client.job_transfers(after=self._after[0], since=self._after[1]))
        kept = federation.apply_report(
            self.cluster,
            ClusterPollResult(
                away=describe_unusable(view),
                transfers={one["transfer"]: _transfer_status(one) for one in rows},
                whole=whole,
                bookings=_booking_names(client) if first else (),
                cpus=view.cpus if chosen.discloses("power") else 0,
                counts=dict(json_members(view.jobs)) if chosen.discloses("load") else {},
                generation=generation,
                family=view.server.family,
                clock_lead_s=ahead,
            ),
        )
        self._after = (generation, view.as_of) if kept else None
        # Before the server is read completely, the plan rejects jobs as impossible: ignore such answers.
        self._known = bool(view.nodes) and not view.stale and not view.arriving
        self._answer_questions(federation.due_questions(self.cluster, generation))
        if kept and federation.settings.licences and time.monotonic() >= self._lend_at:
            self._lend_at = time.monotonic() + min(_LEND_S, federation.settings.routing.recheck)
            self._renew_leases(client)
        if time.monotonic() >= self._summary_at or self._starts_changed(view):
            self._summarise(client, view)

    def _starts_changed(self, view: ClusterView) -> bool:
        before = self._federation.cluster_summaries.get(self.cluster)
        return before is not None and before.starts != view.job_starts.words

    def _summarise(self, client: Client, view: ClusterView) -> None:
        """Update the summary for the page. A cluster that does not answer this is used nevertheless."""
        self._summary_at = time.monotonic() + _SUMMARY_S
        try:
            found = read_summary(client, view, disclosed=self._settings.discloses("load"))
        except ClientError as error:
            _log.info("no summary of a cluster", cluster=self.cluster, why=str(error))
            self._drop()
            return
        self._federation.cluster_summaries[self.cluster] = found

    def _renew_leases(self, client: Client) -> None:
        """Renew the cluster's licence leases."""
        try:
            for grant in self._federation.licence_leases.pending_grants(self.cluster):
                try:
                    found = client.lend(grant.licence, grant.copies, grant.number)
                except Refused as error:
                    if error.kind not in ("invalid", "not-allowed"):
                        raise
                    why = "; ".join(error.places) or error.detail
                    self._federation.licence_leases.record_refusal(
                        grant, why, keeps=error.kind == "not-allowed"
                    )
                else:
                    lent = ClusterLicenceUse(found.copies, found.number, found.held, found.wanted)
                    self._federation.licence_leases.record_use(grant, lent)
        except StoreError as failed:
            _log.error("the log cannot be written; no licence is lent", why=str(failed))

    def _answer_questions(self, questions: list[PlanQuestion]) -> None:
        if not questions or not self._known:
            return
        client, wakeup, federation = self._open(), self._federation.wakeups[self.cluster], self._federation
        answers: dict[PlanQuestion, tuple[PlanOffer, int]] = {}
        done: set[PlanQuestion] = set()
        for one in questions:
            if done and wakeup.is_set():  # new questions go before repeated ones
                first = [new for new in federation.due_questions(self.cluster) if new not in done]
                if first:
                    answers |= {new: self._answer(client, new) for new in first}
                    federation.store_answers(self.cluster, answers)
                    answers = {}
                    done.update(first)
            if one not in done:
                answers[one] = self._answer(client, one)
                done.add(one)
        if answers:
            federation.store_answers(self.cluster, answers)

    def _answer(self, client: Client, question: PlanQuestion) -> tuple[PlanOffer, int]:
        """Query the plan. Return the offer and the plan's generation."""
        resources, queue, user, tasks = question
        asked = scale_resources(dict(resources), self._settings.speed)
        cannot = self._federation.unsupported_reason(self.cluster, dict(resources))
        if cannot:
            return PlanOffer(None, None, cannot, never=True), -1
        try:
            sizes = (tasks,) if tasks else ()
            found: Any = client.what_if(resources=asked, queue=queue, owner=user, tasks=sizes)
        except Refused as error:
            if error.kind not in _OF_THE_JOB:
                raise
            never = error.kind in REFUSALS_OF_THE_JOB
            return PlanOffer(None, None, "; ".join(error.places) or error.detail, never), -1
        except Unreachable as error:
            # All else was answered since the first time: other questions must not wait for this one.
            if question == self._unanswered:
                return PlanOffer(None, None, describe_failure(error)), -1
            self._unanswered = question
            raise
        start = found.get("expected_start") or found["planned_start"]
        length = (found["planned_end"] or 0) - (found["planned_start"] or 0)
        end = start + length if start is not None else None
        if end is not None and found.get("tasks"):
            end = max(end, found["tasks"][-1]["end"])
        offer = PlanOffer(start, end, found["why"], found["answer"] == "never", found.get("cost"))
        return offer, found["generation"]


def _booking_names(client: Client) -> Sequence[str]:
    """Return the names of the cluster's bookings, which a restored log may not know."""
    try:
        return [one.name for one in client.bookings()]
    except Refused:  # it has no bookings
        return ()


def _transfer_status(one: Any) -> TransferStatus:
    """Return the status of a row. Fields that an older schedd does not send keep their defaults."""
    return TransferStatus(**{name: one[name] for name in TransferStatus.__dataclass_fields__ if name in one})
