"""The options of ``schedd demo qsub``, on the command line and in the `#PBS` lines of a script."""

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

__all__ = ["DemoSubmission", "SubmissionError", "add_qsub_options", "read_submission", "resource_items"]

_DIRECTIVE: Final = re.compile(r"^#PBS\s+(.*)$")
_NAME: Final = re.compile(r"[A-Za-z0-9_.+-]{1,230}")
_INDICES: Final = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(:[0-9]{1,6})?(%[0-9]{1,6})?")


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


class _RaisingParser(argparse.ArgumentParser):
    """Raises SubmissionError where other parsers end the process."""

    def error(self, message: str) -> NoReturn:
        raise SubmissionError(f"{self.prog}: {message}")


def add_qsub_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `#PBS` lines may have, too."""
    add = parser.add_argument
    add("-l", dest="request", action="append", metavar="LIST", help="requested resources, as qsub -l")
    add("-N", dest="name", metavar="NAME", help="name of the job")
    add("-q", dest="queue", metavar="QUEUE", help="queue (default: the server's)")
    add("-t", "-J", dest="array", metavar="FIRST-LAST", help="job array of these indices; TORQUE: %%LIMIT")
    add("-h", dest="hold", action="store_true", default=None, help="submit it held")
    add("-W", dest="more", action="append", metavar="NAME=VALUE", help="attribute: depend=afterok:JOB")
    add("-A", dest="account", metavar="ACCOUNT", help="account that is charged")
    add("-p", dest="priority", metavar="PRIORITY", help="priority from -1024 to 1023")
    add("-v", dest="variables", metavar="LIST", help="environment variables: NAME=VALUE,NAME=VALUE")


def read_submission(
    options: Sequence[str], script: str, server: str, default_name: str = ""
) -> DemoSubmission:
    """Return the job that the options and the script's `#PBS` lines describe; the options take precedence.

    Job numbers in dependencies get the name of the ``server``. Raises SubmissionError.
    """
    if not script.strip():
        raise SubmissionError("the script is empty: sleep 600 is enough")
    found = argparse.Namespace(request=[], more=[])
    for source, words in (*_directives(script), ("qsub", list(options))):
        parser = _RaisingParser(prog=source, add_help=False, allow_abbrev=False)
        add_qsub_options(parser)
        given = vars(parser.parse_args(words))
        for name, value in given.items():
            if name in ("request", "more"):
                setattr(found, name, getattr(found, name) + (value or []))
            elif value is not None or not hasattr(found, name):
                setattr(found, name, value)
    return _make_submission(found, script, server, default_name)


def _directives(script: str) -> Iterator[tuple[str, list[str]]]:
    """Yield place and words of each `#PBS` line before the first command, as qsub reads them."""
    for number, line in enumerate(script.splitlines(), 1):
        found = _DIRECTIVE.match(line)
        if found is not None:
            try:
                yield f"line {number} of the script", shlex.split(found[1], comments=True)
            except ValueError as error:
                raise SubmissionError(f"line {number} of the script: {error}") from None
        elif line.strip() and not line.startswith(("#", ":")):
            return


def _make_submission(
    given: argparse.Namespace, script: str, server: str, default_name: str
) -> DemoSubmission:
    if given.name is not None and not _NAME.fullmatch(given.name):
        raise SubmissionError(f"-N {given.name}: a name has letters, digits and _ . + -")
    if given.array is not None and not _INDICES.fullmatch(given.array):
        raise SubmissionError(f"-t {given.array}: give the first and the last index, such as 1-10")
    attributes: dict[str, str] = {}
    for words in given.more:
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
    return DemoSubmission(
        script=script,
        name=given.name or default_name or "STDIN",
        queue=given.queue or "",
        resources=resource_items(",".join(given.request)),
        attributes=attributes,
        variables=given.variables or "",
        array=given.array or "",
    )


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
