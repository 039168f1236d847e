"""The lines of a sched_config, and its companion files."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from schedd.cli.importing.result import NOT_UNDERSTOOD, ImportResult, Verdict, logical_lines

COMMENTS = "#*"  # characters that begin a comment, in all of these files
_LINE = re.compile(r"(\w+)\s*:?\s*(.*)")
_PRIMES = {"ALL": "all", "PRIME": "prime", "NON_PRIME": "non_prime", "NONE": "none"}
_OPENPBS_ALONE = frozenset(
    [
        "strict_ordering",
        "backfill_prime",
        "prime_exempt_anytime_queues",
        "prime_spill",
        "primetime_prefix",
        "nonprimetime_prefix",
        "job_sort_key",
        "node_sort_key",
        "provision_policy",
        "resources",
        "smp_cluster_dist",
        "fairshare_usage_res",
        "fairshare_entity",
        "fairshare_decay_time",
        "fairshare_decay_factor",
        "fairshare_enforce_no_shares",
        "preemptive_sched",
        "peer_queue",
        "mom_resources",
        "server_dyn_res",
    ]
)


@dataclass(frozen=True, slots=True)
class SchedOption:
    """One option; ``prime`` is when it applies: ``prime``, ``non_prime``, ``all`` or ``none``."""

    line: int
    name: str
    value: str
    prime: str

    @property
    def on(self) -> bool:
        """Whether its value means yes."""
        return self.value.lower() in ("true", "yes", "1", "t", "y")

    @property
    def off(self) -> bool:
        return self.value.lower() in ("false", "no", "0", "f", "n", "")


@dataclass(slots=True)
class SchedConfig:
    """The options of prime time, the texts of companion files, and the local time."""

    options: list[SchedOption]
    companions: Mapping[str, str]
    now: datetime
    zone: str
    done: ImportResult
    openpbs: bool = field(init=False)

    def __post_init__(self) -> None:
        self.openpbs = any(option.name in _OPENPBS_ALONE for option in self.options)

    def get(self, name: str) -> SchedOption | None:
        """Return the option; None if the file does not have it."""
        return next((option for option in self.options if option.name == name), None)

    def on(self, name: str) -> bool:
        """Return whether the file has the option, with a value that means yes."""
        option = self.get(name)
        return option is not None and option.on


def parse_options(text: str, done: ImportResult) -> Iterator[SchedOption]:
    """Yield the options of a sched_config, written as ``name: value prime`` or without the colon."""
    for number, last, said in logical_lines(text, COMMENTS):
        if last > number:
            done.ends[number] = last
        found = _LINE.fullmatch(said)
        words = _split_words(found[2]) if found is not None else None
        if found is None or words is None:
            done.note(
                Verdict.BLOCKER,
                number,
                said[:40],
                NOT_UNDERSTOOD,
            )
            continue
        prime = _PRIMES.get(words[-1].upper(), "") if len(words) > 1 else ""
        yield SchedOption(number, found[1].lower(), " ".join(words[:-1] if prime else words), prime or "all")


def parse_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and words of each line of a companion file."""
    for number, line in enumerate(text.splitlines(), 1):
        said = line.strip()
        if said and said[0] not in COMMENTS:
            yield number, said.split()


def _split_words(text: str) -> list[str] | None:
    try:
        return shlex.split(text, comments=True) or None
    except ValueError:
        return None
