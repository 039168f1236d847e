"""Vnodes: resources, charged jobs, and the resulting state."""

from dataclasses import dataclass, field

from server_adapter.emulator.nodes import EmulatedNode

_ZEROS = ("accelerator_memory", "hbmem", "mem", "naccelerators", "ncpus", "vmem")


@dataclass(slots=True)
class Vnode(EmulatedNode):
    """A vnode. `host` is the host of its mom; `offers` are resources in addition to cores and memory;
    `settings` are attributes.

    `charged` are the amounts that each job holds, sizes in KiB. The server assigns every requested amount,
    also beyond the vnode's resources.
    """

    host: str = ""
    offers: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    charged: dict[str, dict[str, int]] = field(default_factory=dict)
    exclusive: set[str] = field(default_factory=set)
    changed: float = 0.0

    @property
    def sharing(self) -> str:
        """How its jobs may share it."""
        return self.settings.get("sharing", "default_shared")

    @property
    def usable(self) -> bool:
        """Whether jobs may start here."""
        return not (self.offline or self.down)

    @property
    def state(self) -> str:
        """The `state` attribute: a comma list."""
        states = [word for word, is_so in (("offline", self.offline), ("down", self.down)) if is_so]
        if self.exclusive:
            states.append("job-exclusive")
        elif self.slots and self.assigned()["ncpus"] >= self.slots:
            states.append("job-busy")
        return ",".join(states) or "free"

    def charge(self, job: str, resources: dict[str, int], *, exclusive: bool) -> None:
        """Charge resources to a job, in addition to earlier ones."""
        held = self.charged.setdefault(job, {})
        for name, amount in resources.items():
            held[name] = held.get(name, 0) + amount
        if exclusive:
            self.exclusive.add(job)

    def release(self, job: str) -> None:
        self.charged.pop(job, None)
        self.exclusive.discard(job)

    def held(self) -> dict[str, tuple[int, ...]]:
        """The jobs here, as many slots as cores."""
        return {job: tuple(range(held.get("ncpus", 0))) for job, held in self.charged.items()}

    def assigned(self) -> dict[str, int]:
        """What jobs hold together."""
        total = dict.fromkeys(_ZEROS, 0)
        for held in self.charged.values():
            for name, amount in held.items():
                total[name] = total.get(name, 0) + amount
        return total

    def is_exclusive_for(self, place: str) -> bool:
        """Return whether a job with this `place` takes the whole vnode."""
        words = set(place.split(":"))
        match self.sharing:
            case "force_excl" | "force_exclhost":
                return True
            case "ignore_excl":
                return False
            case "default_excl" | "default_exclhost":
                return "shared" not in words
        return bool(words & {"excl", "exclhost"})
