"""``schedd install``: the commands for users under their bare names, their man pages, and completion."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.main import BARE_COMMANDS
from schedd.cli.manual import bash_completion, man_page

_PROGRAM = "schedd"


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineErrorParser(
        prog="schedd install",
        description="Link schedd and its commands for users into PREFIX/bin, and write their man "
        "pages and the completion for bash below PREFIX/share. Existing files are not "
        "replaced.",
    )
    add = parser.add_argument
    add(
        "--prefix",
        type=Path,
        default=Path("/usr/local"),
        help="prefix of the installation (default: /usr/local)",
    )
    add("--program", type=Path, help="path of the schedd to link to (default: this one)")
    return parser


def run(argv: Sequence[str]) -> int:
    """Install; 0, or 1 if an existing file was kept, 2 if something could not be written."""
    args = make_parser().parse_args(argv)
    program = (args.program or Path(sys.argv[0])).absolute()
    if not os.access(program, os.X_OK) or program.suffix == ".py":
        print(f"schedd install: {program} is no program to link to; name it with --program", file=sys.stderr)
        return 2
    prefix = args.prefix.absolute()
    left = 0
    try:
        for name in (_PROGRAM, *BARE_COMMANDS):
            left += not _link(prefix / "bin" / name, program)
        for name in (_PROGRAM, *BARE_COMMANDS):
            left += not _write_file(prefix / "share" / "man" / "man1" / f"{name}.1", man_page(name))
        script = prefix / "share" / "bash-completion" / "completions" / _PROGRAM
        left += not _write_file(script, bash_completion())
        for name in BARE_COMMANDS:  # the shell looks for a script under the command's name
            left += not _link(script.with_name(name), script)
    except OSError as error:
        print(f"schedd install: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 1 if left else 0


def _link(path: Path, program: Path) -> bool:
    """Link ``path`` to the program; False when something else is there."""
    if path.is_symlink() and path.readlink() == program:
        print(f"is there  {path}")
        return True
    if path.is_symlink() or path.exists():
        if path.resolve() == program.resolve():
            return True  # the program itself
        print(f"left      {path}: something else is there")
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(program)
    print(f"linked    {path} -> {program}")
    return True


def _write_file(path: Path, text: str) -> bool:
    """Write ``path``, also over what an earlier version of this command wrote there."""
    if path.exists() and _PROGRAM not in path.read_text(encoding="utf-8", errors="replace")[:200]:
        print(f"left      {path}: something else is there")
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote     {path}")
    return True
