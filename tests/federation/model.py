"""A cluster in a few lines, as its daemon and adapter behave, with a network that loses what it likes."""

import random
from collections import Counter
from dataclasses import dataclass, replace

from schedd.federation.routing.machine import Action
from schedd.federation.routing.seen import HandoverSeen


@dataclass
class Cluster:
    """Handovers as ``schedd.engine.machine.handovers`` keeps them; jobs that may run do when chance will."""

    name: str
    chance: random.Random
    ran: Counter[str]
    """By federation's job: how often it was started, anywhere."""

    def __post_init__(self) -> None:
        self.handovers: dict[str, HandoverSeen] = {}
        self.places: dict[str, tuple[int, int]] = {}
        """Kept for jobs on hold."""
        self.cut = False

    def ask(self, action: Action) -> None:
        """A request arrives."""
        known = self.handovers.get(action.handover)
        match action.kind:
            case "submit":
                if known is None:
                    self.handovers[action.handover] = HandoverSeen("asked")
                    if (action.body or {}).get("keep_for") and self.chance.random() < 0.7:
                        start = self.chance.randrange(100, 9000)
                        self.places[action.handover] = (start, start + 100)
            case "release" if known is not None and known.phase == "held":
                self._put(action.handover, phase="releasing", let_run=True)
            case "withdraw" if known is None:
                self.handovers[action.handover] = HandoverSeen("withdrawn")
            case "withdraw" if known is not None:
                if known.end == "ended" or (known.end and known.let_run):
                    return
                if known.phase == "refused" or known.end:
                    self._put(action.handover, phase="withdrawn")
                elif known.phase != "withdrawn":
                    self._put(action.handover, phase="withdrawing")
            case _:
                pass

    def live(self) -> None:
        """Something goes on in one job."""
        if not self.handovers:
            return
        name = self.chance.choice(list(self.handovers))
        one = self.handovers[name]
        match one.phase:
            case "asked":
                refused = self.chance.random() < 0.2
                self._put(name, phase="refused" if refused else "held", job="" if refused else f"j.{name}")
                if not refused and name in self.places:
                    start, end = self.places[name]
                    self._put(name, state="planned", planned_start=start, planned_end=end)
            case "releasing":
                self._put(name, phase="released", state="planned", planned_start=1000, planned_end=5000)
            case "released" if one.state == "planned" and not one.end:
                self.ran[name.split(".")[1]] += 1
                self._put(name, state="running")
            case "released" if one.state == "running" and not one.end:
                self._put(name, end="ended", exit_status=0, state="")
            case "withdrawing" if one.state == "running":
                self._put(name, phase="released", text="it runs")
            case "withdrawing":
                self._put(name, phase="withdrawn")
            case _:
                pass

    def _put(self, name: str, **changes: object) -> None:
        self.handovers[name] = replace(self.handovers[name], **changes)  # type: ignore[arg-type]
