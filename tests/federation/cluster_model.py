"""Minimal model of a cluster's daemon and adapter, with a lossy network."""

import random
from collections import Counter
from dataclasses import dataclass, replace

from schedd.federation.routing.cluster_status import TransferStatus
from schedd.federation.routing.decisions import TransferAction


@dataclass
class RandomCluster:
    """Transfers as ``schedd.features.transfers`` keeps them; jobs that may run do when chance will."""

    name: str
    chance: random.Random
    ran: Counter[str]
    """By federation's job: how often it was started, anywhere."""

    def __post_init__(self) -> None:
        self.transfers: dict[str, TransferStatus] = {}
        self.places: dict[str, tuple[int, int]] = {}
        """Kept for jobs on hold."""
        self.cut = False

    def handle(self, action: TransferAction) -> None:
        """A request arrives."""
        known = self.transfers.get(action.transfer)
        match action.kind:
            case "submit":
                if known is None:
                    self.transfers[action.transfer] = TransferStatus("submitting")
                    if (action.body or {}).get("keep_for") and self.chance.random() < 0.7:
                        start = self.chance.randrange(100, 9000)
                        self.places[action.transfer] = (start, start + 100)
            case "release" if known is not None and known.phase == "held":
                self._update(action.transfer, phase="releasing", release_requested=True)
            case "withdraw" if known is None:
                self.transfers[action.transfer] = TransferStatus("withdrawn")
            case "withdraw" if known is not None:
                if known.end == "ended" or (known.end and known.release_requested):
                    return
                if known.phase == "refused" or known.end:
                    self._update(action.transfer, phase="withdrawn")
                elif known.phase != "withdrawn":
                    self._update(action.transfer, phase="withdrawing")
            case _:
                pass

    def live(self) -> None:
        """Something goes on in one job."""
        if not self.transfers:
            return
        name = self.chance.choice(list(self.transfers))
        one = self.transfers[name]
        match one.phase:
            case "submitting":
                refused = self.chance.random() < 0.2
                self._update(name, phase="refused" if refused else "held", job="" if refused else f"j.{name}")
                if not refused and name in self.places:
                    start, end = self.places[name]
                    self._update(name, state="planned", planned_start=start, planned_end=end)
            case "releasing":
                self._update(name, phase="released", state="planned", planned_start=1000, planned_end=5000)
            case "released" if one.state == "planned" and not one.end:
                self.ran[name.split(".")[1]] += 1
                self._update(name, state="running")
            case "released" if one.state == "running" and not one.end:
                self._update(name, end="ended", exit_status=0, state="")
            case "withdrawing" if one.state == "running":
                self._update(name, phase="released", text="it runs")
            case "withdrawing":
                self._update(name, phase="withdrawn")
            case _:
                pass

    def _update(self, name: str, **changes: object) -> None:
        self.transfers[name] = replace(self.transfers[name], **changes)  # type: ignore[arg-type]
