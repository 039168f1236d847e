"""The options of ``schedd demo qsub``, on the command line and in the `#PBS` lines of a script."""

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

_NAME: Final = re.compile(r"[A-Za-z0-9_.+-]{1,230}")
_INDICES: Final = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(:[0-9]{1,6})?(%[0-9]{1,6})?")
_ATTRIBUTE_ENDS: Final = re.compile(r",(?=[A-Za-z_]+=)")
"""Commas between the attributes of one `-W`; in other places a comma is part of a value."""
_MOMENT: Final = re.compile(r"(?:(?:(?:((?:\d\d)?\d\d)?(\d\d))?(\d\d))?)(\d\d)(\d\d)(?:\.(\d\d))?")
"""[[[[CC]YY]MM]DD]hhmm[.SS], the time of `-a`."""
_WITH_VALUE: Final = ("e", "o", "j", "k", "m", "M", "S", "c", "d", "D", "w", "u", "r", "b", "P", "F")
_FLAGS: Final = ("V", "f", "z")
"""Letters of qsub's options that change neither start nor nodes of a job: with a value, and without."""
_TERMINAL_FLAGS: Final = ("I", "X")


class SubmissionError(ValueError):
    """An option of a submission is invalid. The message names the option and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSubmission:
    """A job for the emulated server, as qsub would send it."""

    script: str
    name: str = "STDIN"
    queue: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    variables: str = ""
    array: str = ""
    not_before: int | None = None  # seconds since the epoch
    without_effect: tuple[str, ...] = ()  # its options that have no effect in the demo, such as `-o`


class _RaisingParser(argparse.ArgumentParser):
    """Raises SubmissionError where other parsers end the process."""

    def error(self, message: str) -> NoReturn:
        raise SubmissionError(f"{self.prog}: {message}")


def add_qsub_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Add the options that `#PBS` lines may have, too, and return them."""
    added: list[argparse.Action] = []

    def add(*names: str, **rules: Any) -> None:
        added.append(parser.add_argument(*names, **rules))

    add("-l", dest="request", action="append", metavar="LIST", help="requested resources, as qsub -l")
    add("-N", dest="name", metavar="NAME", help="name of the job")
    add("-q", dest="queue", metavar="QUEUE", help="queue (default: the server's)")
    add("-t", "-J", dest="array", metavar="FIRST-LAST", help="job array of these indices; TORQUE: %%LIMIT")
    add("-h", dest="hold", action="store_true", default=None, help="submit it held")
    add("-W", dest="more", action="append", metavar="NAME=VALUE", help="attribute: depend=afterok:JOB")
    add("-A", dest="account", metavar="ACCOUNT", help="account that is charged")
    add("-p", dest="priority", metavar="PRIORITY", help="priority from -1024 to 1023")
    add("-v", dest="variables", metavar="LIST", help="environment variables: NAME=VALUE,NAME=VALUE")
    add("-a", dest="after", metavar="TIME", help="do not start before [[[[CC]YY]MM]DD]hhmm[.SS]")
    add("-n", dest="exclusive", action="store_true", default=None, help="no other job on its nodes; TORQUE")
    add("-C", dest="prefix", metavar="PREFIX", help="prefix of the script's options (default: #PBS)")
    letters = ", ".join(f"-{letter}" for letter in (*_WITH_VALUE, *_FLAGS))
    for number, letter in enumerate((*_WITH_VALUE, *_FLAGS)):
        about = argparse.SUPPRESS if number else f"{letters}: accepted, without effect in the demo"
        if letter in _FLAGS:
            add(f"-{letter}", dest=f"flag_{letter}", action="store_true", default=None, help=about)
        else:
            add(f"-{letter}", dest=f"value_{letter}", metavar="VALUE", help=about)
    for letter in _TERMINAL_FLAGS:
        add(f"-{letter}", dest="terminal", action="store_const", const=letter, help=argparse.SUPPRESS)
    return added


def qsub_arguments(args: argparse.Namespace) -> list[str]:
    """Return qsub's options among the arguments, as words."""
    found = []
    for action in add_qsub_options(argparse.ArgumentParser(add_help=False)):
        value = getattr(args, action.dest)
        letter = action.option_strings[0]
        if action.nargs != 0:
            values = value if isinstance(value, list) else [value]
            found += [f"{letter}{one}" for one in values if one is not None]
        elif value is True or f"-{value}" == letter:
            found.append(letter)
    return found


def read_submission(
    options: Sequence[str], script: str, server: str, default_name: str = "", *, today: datetime
) -> DemoSubmission:
    """Return the job that the options and the script's `#PBS` lines describe; the options take precedence.

    Job numbers in dependencies get the name of the ``server``; ``today`` is the time of the cluster, for the
    time of `-a`. Raises SubmissionError.
    """
    if not script.strip():
        raise SubmissionError("the script is empty: sleep 600 is enough")
    found = argparse.Namespace(request=[], more=[])
    given = _parse("qsub", options)
    prefix = given.prefix if given.prefix is not None else "#PBS"
    for part in (*(_parse(source, words) for source, words in _directives(script, prefix)), given):
        for name, value in vars(part).items():
            if name in ("request", "more"):
                setattr(found, name, getattr(found, name) + (value or []))
            elif value is not None or not hasattr(found, name):
                setattr(found, name, value)
    return _make_submission(found, script, server, default_name, today)


def _parse(source: str, words: Sequence[str]) -> argparse.Namespace:
    parser = _RaisingParser(prog=source, add_help=False, allow_abbrev=False)
    add_qsub_options(parser)
    return parser.parse_args(words)


def _directives(script: str, prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Yield place and words of the lines with this prefix before the first command; no prefix: none."""
    directive = re.compile(rf"{re.escape(prefix)}\s+(.*)$")
    for number, line in enumerate(script.splitlines() if prefix else (), 1):
        found = directive.match(line)
        if found is not None:
            try:
                yield f"line {number} of the script", shlex.split(found[1], comments=True)
            except ValueError as error:
                raise SubmissionError(f"line {number} of the script: {error}") from None
        elif line.strip() and not line.startswith(("#", ":")):
            return


def _make_submission(
    given: argparse.Namespace, script: str, server: str, default_name: str, today: datetime
) -> DemoSubmission:
    if given.terminal is not None:
        raise SubmissionError(f"-{given.terminal}: the demo has no interactive jobs; give it a script")
    if given.name is not None and not _NAME.fullmatch(given.name):
        raise SubmissionError(f"-N {given.name}: a name has letters, digits and _ . + -")
    if given.array is not None and not _INDICES.fullmatch(given.array):
        raise SubmissionError(f"-t {given.array}: give the first and the last index, such as 1-10")
    attributes: dict[str, str] = {}
    for words in (one for more in given.more for one in _ATTRIBUTE_ENDS.split(more)):
        name, equals, value = words.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise SubmissionError(f"-W {words}: give NAME=VALUE, such as depend=afterok:12")
        attributes[name] = _with_server(value, server) if name == "depend" else value
    if given.hold:
        attributes["Hold_Types"] = "u"
    if given.account is not None:
        attributes["Account_Name"] = given.account
    if given.priority is not None:
        attributes["Priority"] = given.priority
    if given.exclusive:
        attributes["node_exclusive"] = "True"
    unused = (
        f"-{letter}"
        for kind, letters in (("value", _WITH_VALUE), ("flag", _FLAGS))
        for letter in letters
        if getattr(given, f"{kind}_{letter}") is not None
    )
    return DemoSubmission(
        script=script,
        name=given.name or default_name or "STDIN",
        queue=given.queue or "",
        resources=resource_items(",".join(given.request)),
        attributes=attributes,
        variables=given.variables or "",
        array=given.array or "",
        not_before=_read_moment(given.after, today) if given.after is not None else None,
        without_effect=tuple(unused),
    )


def _read_moment(text: str, today: datetime) -> int:
    """Return the time of `-a` in seconds since the epoch. A part that is left out has the first value with
    which the time lies ahead, as with qsub. Raises SubmissionError.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise SubmissionError(f"-a {text}: give [[[[CC]YY]MM]DD]hhmm[.SS], such as 2130")
    year, month, day, hour, minute, second = found.groups()
    try:
        at = today.replace(hour=int(hour), minute=int(minute), second=int(second or 0), microsecond=0)
        if day is None:
            at += timedelta(days=at < today)
        else:
            at = _with_date(at, today, year, month, int(day))
    except ValueError as error:
        raise SubmissionError(f"-a {text}: {error}") from None
    return int(at.timestamp())


def _with_date(at: datetime, today: datetime, year: str | None, month: str | None, day: int) -> datetime:
    if year is not None:
        century = 0 if len(year) == 4 else today.year // 100 * 100
        return at.replace(year=century + int(year), month=int(month or 0), day=day)
    if month is not None:
        dated = at.replace(month=int(month), day=day)
        return dated if dated >= today else dated.replace(year=today.year + 1)
    for months in range(13):
        number = today.month - 1 + months
        try:
            dated = at.replace(year=today.year + number // 12, month=number % 12 + 1, day=day)
        except ValueError:  # a month without such a day
            continue
        if dated >= today:
            return dated
    raise ValueError("day is out of range for month")


def resource_items(request: str) -> dict[str, str]:
    """Return the resources of a list such as `nodes=2:ppn=8,walltime=1:00:00`. Raises SubmissionError."""
    found: dict[str, str] = {}
    for item in filter(None, map(str.strip, request.split(","))):
        name, equals, value = item.partition("=")
        if not equals or not name or not value:
            raise SubmissionError(f"-l {item}: give NAME=VALUE, such as nodes=2:ppn=8")
        found[name] = value
    return found


def _with_server(depend: str, server: str) -> str:
    """Return the dependencies with complete job ids: `afterok:12` becomes `afterok:12.demo`."""
    conditions = []
    for condition in depend.split(","):
        kind, *jobs = condition.split(":")
        named = [job if "." in job or kind == "on" else f"{job}.{server}" for job in jobs]
        conditions.append(":".join([kind, *named]))
    return ",".join(conditions)
