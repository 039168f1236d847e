"""``python -m research lines``: lines of the shipped code by capability, as a Markdown table."""

import argparse
import ast
import io
import subprocess
import tokenize
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[1]
_PAGES: Final = (".html", ".css", ".js")
_OTHER: Final = (".sql", ".c")
_KINDS: Final = ("code", "docstrings", "comments", "blank", "pages")
_SINGLE: Final = {"schedd/features": 3}
"""Folders whose folders are listed singly, with the number of parts of such a path."""


def count_python_lines(text: str) -> Counter[str]:
    """Return the number of lines with code, only docstrings, only comments, and nothing."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    coded: set[int] = set()
    commented: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            commented.add(token.start[0])
        elif token.string.strip() and token.type != tokenize.ENDMARKER:
            coded.update(range(token.start[0], token.end[0] + 1))
    coded -= documented
    commented -= coded | documented
    blank = len(text.splitlines()) - len(coded) - len(documented) - len(commented)
    return Counter(code=len(coded), docstrings=len(documented), comments=len(commented), blank=blank)


def run(argv: Sequence[str]) -> int:
    """Print the table."""
    argparse.ArgumentParser(prog="python -m research lines", description=__doc__).parse_args(argv)
    found: dict[str, Counter[str]] = {}
    for name in _shipped_files():
        path = Path(name)
        folder = "/".join(path.parts[:2]) if len(path.parts) > 2 else path.parts[0]
        capability = "/".join(path.parent.parts[: _SINGLE.get(folder, 2)])
        text = (_ROOT / path).read_text(encoding="utf-8")
        lines = count_python_lines(text) if path.suffix == ".py" else Counter(_kind(path, text))
        found.setdefault(capability, Counter()).update(lines)
    print(f"| folder | lines | {' | '.join(_KINDS)} |\n|{'---|' * (len(_KINDS) + 2)}")
    for capability, lines in sorted(found.items(), key=lambda one: -one[1].total()):
        print(_row(f"`{capability}`", lines))
    print(_row("all", sum(found.values(), Counter())))
    return 0


def _shipped_files() -> list[str]:
    listed = ["git", "ls-files", "schedd", "server_adapter"]
    done = subprocess.run(listed, cwd=_ROOT, capture_output=True, text=True, check=True)
    return [one for one in done.stdout.splitlines() if one.endswith((".py", *_PAGES, *_OTHER))]


def _kind(path: Path, text: str) -> dict[str, int]:
    return {"pages" if path.suffix in _PAGES else "code": len(text.splitlines())}


def _row(name: str, lines: Counter[str]) -> str:
    cells = (name, *(f"{count:,}" for count in (lines.total(), *(lines[kind] for kind in _KINDS))))
    return f"| {' | '.join(cells)} |"
