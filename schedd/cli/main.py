"""``schedd COMMAND …``: finds the command's module and imports only that.

Only the standard library is imported here, so that commands for users start fast. A command's module has
``make_parser``, and ``run``, a function that gets the arguments and returns the exit code.
"""

import io
import os
import select
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from schedd import __version__
from schedd.cli.arguments import CommandFailedError
from schedd.feature_list import feature_commands

_OWN_COMMANDS: Final = {
    "accuracy": ("schedd.cli.user.accuracy", "Show how accurate predicted starts were."),
    "audit": ("schedd.cli.audit", "Show the audit."),
    "bag": ("schedd.federation.commands.bag", "Share many tasks with a deadline over clusters."),
    "cancel": ("schedd.federation.commands.cancel", "Cancel jobs of the federation."),
    "checkjob": ("schedd.cli.user.checkjob", "Show everything about a job."),
    "coallocate": (
        "schedd.federation.commands.coallocate",
        "Start jobs at several clusters at the same moment.",
    ),
    "config": ("schedd.cli.config", "Create, check, show and explain settings."),
    "cost": ("schedd.cli.user.cost", "Show a job's cost and energy."),
    "demo": ("schedd.cli.demo.command", "Show the daemon at work on an emulated cluster."),
    "doctor": ("schedd.cli.doctor", "Check a site from settings to server; say what to do."),
    "emulate": ("schedd.cli.emulate", "Run an emulated pbs_server over a simulated cluster."),
    "federate": ("schedd.federation.federate_command", "Run a federation of several clusters."),
    "federation": ("schedd.federation.commands.federation", "Show a federation's clusters and report."),
    "history": ("schedd.cli.history", "Show what happened to a job or a node."),
    "hold": ("schedd.cli.user.hold", "Drain nodes or hold queues."),
    "import": ("schedd.cli.import_config", "Translate a maui.cfg or sched_config into settings."),
    "install": ("schedd.cli.install", "Install links, man pages and completion for users."),
    "migrate": ("schedd.cli.migrate", "Upgrade or downgrade the database's tables."),
    "objectives": ("schedd.cli.user.objectives", "Show the plan's value by each objective."),
    "optimise": ("schedd.cli.user.optimise", "Search for a better plan now."),
    "pause": ("schedd.cli.user.pause", "Stop starting jobs on a cluster."),
    "policy": ("schedd.cli.user.policy", "Show, preview or change limits, weights, shares."),
    "release": ("schedd.cli.user.release", "Release drained nodes or held queues."),
    "replay": ("schedd.cli.replay", "Replay logs under one or more policies and compare."),
    "report": ("schedd.cli.user.report", "Show balance, deadlines, use and waits of clusters."),
    "rerun": ("schedd.cli.rerun", "Replay an incident from the event log."),
    "resume": ("schedd.cli.user.resume", "Start jobs on a cluster again."),
    "serve": ("schedd.cli.serve", "Run the daemon."),
    "shadow-report": ("schedd.cli.shadow_report", "Compare the plan with another scheduler's starts."),
    "showbf": ("schedd.cli.user.showbf", "Show free cpus and nodes, and for how long."),
    "showplan": ("schedd.cli.user.showplan", "Show the plan as a text chart."),
    "showq": ("schedd.cli.user.showq", "Show running, planned and waiting jobs."),
    "showstart": ("schedd.cli.user.showstart", "Show when a job starts, and why not sooner."),
    "submit": ("schedd.federation.commands.submit", "Submit a job to the federation."),
    "throughput": ("schedd.cli.user.throughput", "Measure a command's units of work a second."),
    "token": ("schedd.cli.token", "Create, list and revoke access tokens."),
}
COMMANDS: Final = dict(sorted((_OWN_COMMANDS | feature_commands()).items()))
"""Module and summary of every command, in the order of the help."""

BARE_COMMANDS: Final = ("checkjob", "showbf", "showplan", "showq", "showstart")
"""Commands for users, which links to this program offer under their own names, too."""

_MEANT: Final = {"status": ["doctor"], "qstat": ["showq"], "alerts": ["doctor"]}
"""What names from elsewhere are called here."""

VALUES_COMMAND: Final = "__values"  # what the completion script calls for names; no command for people

_ABOUT = "A planning scheduler for PBS-family clusters: every queued job has a planned start."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. A reader that has seen enough (``| head``) is no error.

    A terminal that cannot show a character, such as the ellipsis after a long name, gets a question mark.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            return _run_command(argv)
        finally:
            sys.stdout.flush()  # what the interpreter flushes, fails aloud
    except BrokenPipeError:
        if not _has_no_reader(sys.stdout.fileno()):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _has_no_reader(pipe: int) -> bool:
    """Whether this pipe has no reader any more."""
    poll = select.poll()
    poll.register(pipe, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _run_command(argv: Sequence[str] | None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        called = sys.argv[0].rpartition("/")[2]
        if called in BARE_COMMANDS:  # a link to this program
            return int(import_module(COMMANDS[called][0]).run(args, called))
    if not args or args[0] in ("-h", "--help", "help"):
        print(_help_text())
        return 0 if args else 2
    if args[0] in ("-V", "--version"):
        print(f"schedd {__version__}")
        return 0
    name = args[0]
    if name == VALUES_COMMAND:
        return int(import_module("schedd.cli.user.completion_values").run(args[1:]))
    if name not in COMMANDS:
        from difflib import get_close_matches  # noqa: PLC0415  (only a mistyped command pays for it)

        near = _MEANT.get(name) or get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else "`schedd --help` lists the commands"
        print(f"schedd: no command {name!r}; {hint}", file=sys.stderr)
        return 2
    module = import_module(COMMANDS[name][0])
    if name in BARE_COMMANDS:
        return int(module.run(args[1:], f"schedd {name}"))
    try:
        return int(module.run(args[1:]))
    except CommandFailedError as failed:
        return failed.code


def _help_text() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: schedd COMMAND [OPTIONS] [ARGUMENTS]",
            "",
            _ABOUT,
            "",
            "commands:",
            *lines,
            "",
            "`schedd COMMAND --help` shows its options; `schedd --version` the version.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
