"""The server's notations to plain values: durations, sizes, host lists, states (protocol document, 6).

Every function raises `ValueError` for text it cannot read; what to do then is the caller's business.
"""

import re
from collections import Counter
from collections.abc import Mapping

from schedd.wire.bounds import AMOUNT_END, bounded

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5, "e": 1024**6}
_SIZE = re.compile(r"(\d+)\s*([kmgtpe]?)([bw]?)", re.IGNORECASE)
_WORD = 8  # bytes
_MOM_JOBS = re.compile(r"(?:^|,)\s*jobs=([^,]*)")
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_MAX_SLOTS = 1_000_000


def seconds(text: str) -> int:
    """`01:40`, `100`, `00:01:40` or `2:00:00:00` (days first) in seconds; fractions are cut off."""
    parts = text.strip().split(":")
    if not 1 <= len(parts) <= 4:
        raise ValueError(f"not a duration: {text!r}")
    total = 0
    for weight, part in zip((1, 60, 3600, 86400), reversed(parts), strict=False):
        whole = part.partition(".")[0] if weight == 1 else part
        total += weight * _natural(whole, "a duration", text)
    return total


def kib(text: str) -> int:
    """`512mb`, `6600kb`, `2gw` or plain bytes in KiB, rounded up."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    digits, unit, kind = match.groups()
    size = int(digits) * _UNITS[unit.lower()] * (_WORD if kind.lower() == "w" else 1)
    return bounded(-(-size // 1024), AMOUNT_END)


def flag(text: str) -> bool:
    """`True`, `t`, `yes`, `1` and their opposites, in any case."""
    word = text.strip().lower()
    if word in ("true", "t", "yes", "y", "1"):
        return True
    if word in ("false", "f", "no", "n", "0"):
        return False
    raise ValueError(f"not a truth value: {text!r}")


def slots(text: str) -> tuple[int, ...]:
    """Slot numbers: `0-3`, `0,2`, `1-2,5`."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = _natural(first, "a slot", text)
        high = _natural(last, "a slot", text) if dash else low
        if high < low or high - low >= _MAX_SLOTS:
            raise ValueError(f"not a slot range: {text!r}")
        numbers.extend(range(low, high + 1))
    return tuple(numbers)


def exec_host(text: str) -> tuple[tuple[str, int], ...]:
    """Nodes and how many of their slots a job holds, in the server's order (the first is mother superior).

    Reads `n/0+n/1` (4.2), `n/1+n/0` (2.5) and `n1/0-3+n2/0-3` (6.1). A node without slots counts as one.
    """
    held: dict[str, int] = {}
    for part in text.split("+"):
        name, slash, numbers = part.strip().partition("/")
        if not name:
            raise ValueError(f"not a host list: {text!r}")
        held[name] = held.get(name, 0) + (len(slots(numbers)) if slash else 1)
    return tuple(held.items())


def node_jobs(text: str) -> Mapping[str, int]:
    """Slots held by each job on a node.

    Reads `0-1/0.localhost,2/5.localhost` (6.1), `0/0.localhost,1/0.localhost` (4.2) and the same with blanks
    (2.5). In 6.1 a comma may also stand inside the slots of one job: `0,2/5.localhost`.
    """
    held: Counter[str] = Counter()
    pending: list[str] = []
    for part in text.split(","):
        numbers, slash, job = part.strip().partition("/")
        if not numbers:
            continue
        pending.append(numbers)
        if slash:
            held[job] += len(slots(",".join(pending)))
            pending.clear()
    if pending:
        raise ValueError(f"slots without a job: {text!r}")
    return dict(held)


def node_status(text: str) -> dict[str, str]:
    """The mom's report, `key=value` pairs with commas between them, in any order.

    A piece without `=` belongs to the value before it (`uname` and `varattr` may hold commas).
    """
    found: dict[str, str] = {}
    last: str | None = None
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if equals and key.strip().isidentifier():
            last = key.strip()
            found[last] = value
        elif last is not None:
            found[last] += "," + part
    return found


def mom_jobs(text: str) -> frozenset[str] | None:
    """The jobs in a mom's report; None if it has no list of jobs.

    Reads `jobs=1.srv 2.srv` (4.2) and `jobs=1.srv(cput=0,mem=1kb) 2.srv(cput=1)` (6.1).
    """
    found = _MOM_JOBS.search(_IN_PARENTHESES.sub(" ", text))
    if found is None:
        return None
    return frozenset(found[1].split()) - {"?"}


def split_list(text: str) -> tuple[str, ...]:
    """A comma list without its blanks and empty places."""
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def _natural(digits: str, what: str, text: str) -> int:
    digits = digits.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise ValueError(f"not {what}: {text!r}")
    return int(digits)
