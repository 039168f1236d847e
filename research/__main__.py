"""``python -m research bench …``, ``… experiment …``, ``… end_to_end …``, ``… lines``, ``… removal …``,
``… stale …`` and ``… streams …``.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

COMMANDS: Final = {
    "bench": ("research.benchmarks.command", "measure planner, daemon, adapter and pages on this machine"),
    "experiment": ("research.studies.command", "run a study of policies: a page, its figures and a picture"),
    "end_to_end": ("research.studies.end_to_end", "run the same jobs in a replay and on a real server"),
    "lines": ("research.code_size", "print the lines of the shipped code by folder, as a Markdown table"),
    "removal": ("research.removal", "delete each feature in a copy of the repository and check what remains"),
    "stale": ("research.stale", "list the pages of results that the present sources did not make"),
    "streams": ("research.streams", "compare engines with restored ones in long random streams of events"),
}
"""Module and summary of each command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; 2 for an unknown one."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] not in COMMANDS:
        lines = [f"  python -m research {name:11} {about}" for name, (_, about) in COMMANDS.items()]
        print("\n".join(["usage: python -m research COMMAND …", *lines]), file=sys.stderr)
        return 0 if args and args[0] in ("-h", "--help") else 2
    return int(import_module(COMMANDS[args[0]][0]).run(args[1:]))


if __name__ == "__main__":
    sys.exit(main())
