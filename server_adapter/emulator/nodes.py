"""Nodes of the simulated cluster: slots, states, reports of their moms."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node to simulate: `slots` job slots (np), memory and swap in KiB.

    With a product name (`gpu_product`) the mom reports its gpus one by one, and those in `prohibited` (their
    numbers) serve no job. The generic resources reported by the mom (`gres`, such as `scratch:100`) are shown
    but not allocated.
    """

    name: str
    slots: int = 4
    properties: tuple[str, ...] = ()
    memory: int = 24_684_100
    swap: int = 0
    gpus: int = 0
    gres: str = ""
    gpu_product: str = ""
    prohibited: frozenset[int] = frozenset()


@dataclass(slots=True)
class EmulatedNode:
    """A node as known to the server. `taken` is the job in each slot, `taken_gpus` the job and the mode of
    each gpu in use.

    `alive` is the actual state of the mom, `down` the state known to the server. `load` and `available`
    override the mom's report of load average and free memory (KiB).
    """

    spec: NodeSpec
    mom_port: int
    slots: int = 0
    properties: tuple[str, ...] = ()
    offline: bool = False
    alive: bool = True
    down: bool = False
    note: str = ""
    taken: dict[int, str] = field(default_factory=dict)
    taken_gpus: dict[int, tuple[str, str]] = field(default_factory=dict)
    reported: int = 0
    load: float | None = None
    available: int | None = None

    def __post_init__(self) -> None:
        self.slots = self.slots or self.spec.slots
        self.properties = self.properties or self.spec.properties

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def usable(self) -> bool:
        """Whether the server lets jobs start here."""
        return not (self.offline or self.down)

    @property
    def free(self) -> int:
        """Slots that no job holds; never negative, even when np was lowered under running jobs."""
        return max(0, self.slots - len(self.taken))

    @property
    def gpus(self) -> int:
        """Gpus that jobs can get."""
        return self.spec.gpus - len(self.spec.prohibited)

    @property
    def free_gpus(self) -> list[int]:
        """Numbers of the gpus that no job has. A gpu in mode shared is given to one job, too (6.1)."""
        used = self.spec.prohibited | self.taken_gpus.keys()
        return [number for number in range(self.spec.gpus) if number not in used]

    @property
    def state(self) -> str:
        """The `state` attribute: a comma list."""
        states = []
        if self.down:
            states.append("down")
        if self.offline:
            states.append("offline")
        if not states:
            states.append("free" if self.free else "job-exclusive")
        elif not self.free:
            states.append("job-exclusive")
        return ",".join(states)

    def assign_slots(self, count: int, job: str) -> tuple[int, ...]:
        """Assign the lowest free slots to a job."""
        chosen = tuple([slot for slot in range(self.slots) if slot not in self.taken][:count])
        for slot in chosen:
            self.taken[slot] = job
        return chosen

    def assign_gpus(self, count: int, job: str, mode: str) -> tuple[int, ...]:
        """Assign the first free gpus to a job."""
        chosen = tuple(self.free_gpus[:count])
        self.taken_gpus |= dict.fromkeys(chosen, (job, mode))
        return chosen

    def release(self, job: str) -> None:
        """Release a job's slots and gpus."""
        self.taken_gpus = {number: held for number, held in self.taken_gpus.items() if held[0] != job}
        for slot in [slot for slot, holder in self.taken.items() if holder == job]:
            del self.taken[slot]

    def held(self) -> dict[str, tuple[int, ...]]:
        """The slots of each job, lowest slot first."""
        found: dict[str, list[int]] = {}
        for slot in sorted(self.taken):
            found.setdefault(self.taken[slot], []).append(slot)
        return {job: tuple(slots) for job, slots in found.items()}
