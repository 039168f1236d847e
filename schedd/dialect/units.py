"""Parsing and formatting of the servers' units: walltimes in seconds, sizes in KiB."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from schedd.dialect.span import Span

LARGEST_SIZE: Final = 2**50  # maximum size in a request, in KiB (1 EiB)

LONGEST_TIME: Final = 1_000_000 * 3600 - 1
"""Maximum time in a request, in seconds (999999:59:59, 114 years). Its product with the maximum number of
cores (``LARGEST``) fits into 64 bits.
"""

TIME_RESOURCES: Final = frozenset(
    {
        *("walltime", "cput", "pcput", "min_walltime", "max_walltime", "soft_walltime"),
        *("minwclimit", "x.minwclimit"),
    }
)
"""Lower-case names of resources with times as values."""

_PLAIN_DIGITS: Final = 9  # maximum length of a plain number of seconds that is never above `LONGEST_TIME`
_TIME_FIELDS = (1, 60, 3600, 86400)
_TIME_ALLOWED = "SS, MM:SS, HH:MM:SS or DD:HH:MM:SS, for example 01:30:00, or 90m, 1h30m, 2d"
_SPANNED = re.compile(
    r"(?=[0-9])(?:([0-9]{1,6})d)?(?:([0-9]{1,8})h)?(?:([0-9]{1,10})m)?(?:([0-9]{1,12})s)?", re.IGNORECASE
)
_TIME_FIELD = re.compile(r"[0-9]{1,12}")
_FRACTION = re.compile(r"[0-9]*")
_SIZE = re.compile(r"([0-9]+)(?:([kmgtpe])([bw])?|([bw]))?", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_LONG = 100_000
_SIZE_ALLOWED = "a whole number and b, kb, mb, gb, tb or pb (kw, mw, … for words of 8 bytes), for example 2gb"
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50, "e": 60}
_WORD = 8


def parse_walltime(text: str | Span) -> int:
    """Return the seconds of ``SS``, ``MM:SS``, ``HH:MM:SS`` or ``DD:HH:MM:SS``; fractions are rounded.

    As in the servers (``decode_time``), any field may exceed 59. Users may also write ``90m``, ``1h30m`` or
    ``2d``, which no server sends. The maximum is ``LONGEST_TIME``. Raises RequestError.
    """
    plain = str(text)
    if len(plain) <= _PLAIN_DIGITS and plain.isascii() and plain.isdecimal():
        return int(plain)  # as most jobs request it
    span = Span.from_text(text)
    seconds = _seconds(span)
    if seconds > LONGEST_TIME:
        raise span.error("the time is too long", f"at most {format_walltime(LONGEST_TIME)}")
    return seconds


def _seconds(span: Span) -> int:
    if (units := _SPANNED.fullmatch(str(span))) is not None and not str(span).isdecimal():
        days, hours, minutes, seconds = (int(part or 0) for part in units.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    whole, fraction = span.partition(".")
    if fraction is not None and not _FRACTION.fullmatch(str(fraction)):
        raise fraction.error(f"a fraction of a second has digits only, not {fraction.shown()}", _TIME_ALLOWED)
    fields = whole.split(":")
    if len(fields) > len(_TIME_FIELDS):
        raise fields[-1].error("a time has at most four fields", _TIME_ALLOWED)
    seconds = 0
    for field, factor in zip(reversed(fields), _TIME_FIELDS, strict=False):
        if not _TIME_FIELD.fullmatch(str(field)):
            raise field.error(f"invalid time {span.shown()}", _TIME_ALLOWED)
        seconds += int(str(field)) * factor
    return seconds + (fraction is not None and str(fraction)[:1] >= "5")


def parse_size(text: str | Span) -> int:
    """Return the KiB of a size such as ``2gb``, ``512MB``, ``100kw`` or ``1048576`` (bytes), rounded up.

    Raises RequestError.
    """
    span = Span.from_text(text)
    match = _SIZE.fullmatch(str(span))
    if match is None:
        raise span.error(f"invalid size {span.shown()}", _SIZE_ALLOWED)
    digits, prefix, suffix, unit = match.groups(default="")
    digits = digits.lstrip("0") or "0"
    if len(digits) <= 19:
        factor = _WORD if (suffix or unit).lower() == "w" else 1
        kib = -(-((int(digits) * factor) << _SHIFTS[prefix.lower()]) // 1024)
        if kib <= LARGEST_SIZE:
            return kib
    raise span.error("the size is too large", f"at most {format_size(LARGEST_SIZE)}")


_CHUNK_SIZE: Final = re.compile(r"(?:^|[:+])(p?v?mem)=([0-9]+)(?=$|[:+])", re.IGNORECASE)
_SIZES: Final = frozenset({"mem", "vmem", "pmem", "pvmem"})


def without_units(resources: Mapping[str, str]) -> Iterator[str]:
    """Yield a remark for each walltime and memory without a unit, with the servers' interpretation.

    Invalid values are skipped: the parsers of requests report them.
    """
    for name, text in resources.items():
        key, bare = name.lower(), text.strip()
        if key == "walltime" and bare.isascii() and bare.isdecimal() and len(bare) <= 12:
            seconds = int(bare)
            noun = "second" if seconds == 1 else "seconds"
            yield f"walltime {bare} was read as {seconds} {noun} ({format_walltime(seconds)})"
        sizes = [(key, bare)] if key in _SIZES and bare.isdecimal() else []
        sizes += _CHUNK_SIZE.findall(bare) if key == "select" else []
        for size, number in sizes:
            if number.isascii() and len(number) <= 19:
                kib = format_rounded_size(-(-int(number) // 1024))
                more = f"write {number}gb or {number}mb for more"
                yield f"{size.lower()} {number} was read as {number} bytes ({kib}); {more}"


def resembles_amount(text: str) -> bool:
    """Return whether the text is a number or a size rather than a name."""
    return _SIZE.fullmatch(text) is not None or _NUMBER.fullmatch(text) is not None


def format_size(kib: int) -> str:
    """Format KiB exactly as the servers do, in the largest unit that divides it: 2097152 is ``2gb``."""
    units = ("kb", "mb", "gb", "tb", "pb")
    index = 0
    while kib and kib % 1024 == 0 and index < len(units) - 1:
        kib //= 1024
        index += 1
    return f"{kib}{units[index]}"


def format_rounded_size(kib: int) -> str:
    """Format KiB for users, in the servers' units: ``900gb``; long values are rounded down: ``23.54gb``."""
    exact = format_size(kib)
    if kib < _LONG:
        return exact
    number, unit = int(exact[:-2]), exact[-2:]
    if number < _LONG:
        return exact
    units = ("kb", "mb", "gb", "tb", "pb")
    index, hundredths = units.index(unit), 100 * number
    while hundredths >= 100 * 1024 and index < len(units) - 1:
        hundredths //= 1024
        index += 1
    return f"{hundredths / 100:.2f}{units[index]}"


def format_walltime(seconds: int) -> str:
    """Format seconds as ``HH:MM:SS``; hours may exceed 23."""
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
