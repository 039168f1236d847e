"""``python -m research lines``: lines of the shipped code by folder, and what each folder is for."""

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
_ASSETS: Final = ("templates", "static")
"""Folders that count as the package they are in."""


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
    found: dict[Path, Counter[str]] = {}
    for name in _shipped_files():
        path = Path(name)
        folder = path.parent.parent if path.parent.name in _ASSETS else path.parent
        text = (_ROOT / path).read_text(encoding="utf-8")
        lines = count_python_lines(text) if path.suffix == ".py" else Counter(_kind(path, text))
        found.setdefault(folder, Counter()).update(lines)
    print(f"| folder | lines | {' | '.join(_KINDS)} | what it is for |")
    print(f"|---|{'--:|' * (len(_KINDS) + 1)}---|")
    for folder, lines in sorted(found.items()):
        print(_row(f"`{folder}`", lines, _purpose(folder)))
    print(_row("all", sum(found.values(), Counter()), ""))
    return 0


def _purpose(folder: Path) -> str:
    """The first sentence of the package's docstring."""
    module = ast.parse((_ROOT / folder / "__init__.py").read_text(encoding="utf-8"))
    text = " ".join((ast.get_docstring(module) or "").partition("\n\n")[0].split())
    return text.replace("``", "`").partition(". ")[0].rstrip(".")


def _shipped_files() -> list[str]:
    listed = ["git", "ls-files", "schedd", "server_adapter"]
    done = subprocess.run(listed, cwd=_ROOT, capture_output=True, text=True, check=True)
    return [one for one in done.stdout.splitlines() if one.endswith((".py", *_PAGES, *_OTHER))]


def _kind(path: Path, text: str) -> dict[str, int]:
    return {"pages" if path.suffix in _PAGES else "code": len(text.splitlines())}


def _row(name: str, lines: Counter[str], purpose: str) -> str:
    cells = (name, *(f"{count:,}" for count in (lines.total(), *(lines[kind] for kind in _KINDS))), purpose)
    return f"| {' | '.join(cells)} |"
