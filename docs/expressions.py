"""How long regular expressions take over hostile text: `python docs/expressions.py [JSON]`.

It finds the expressions in the source, makes texts of pieces that are repeated before something that does not
fit, and tells by processor time how the time grows as the text doubles: 2 is linear, 4 quadratic, more than 8
worse. Expressions of settings and of the API's schema (`pattern=`) run in an engine that is linear by design,
and are not tried.
"""

import ast
import json
import re
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_USES = ("compile", "match", "fullmatch", "search", "findall", "split", "sub")
_PIECES = ("a", "0", " ", "1:", "a=", "a+", ",", "\\", '"', "(", "[", "]", "\n", "é", "/", "-")
_ENDS = ("!", "\x00a")
_SIZES = (1_000, 2_000, 4_000)
_TOO_LONG_S = 2.0
_NOTICED_S = 0.001


def expressions() -> Iterator[tuple[str, int, str]]:
    """File, line and text of each that is written out in the source."""
    for folder in ("schedd", "server_adapter"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                    continue
                of, first = node.func, node.args[0]
                if not (isinstance(of.value, ast.Name) and of.value.id == "re" and of.attr in _USES):
                    continue
                if isinstance(first, ast.Constant) and isinstance(first.value, str | bytes):
                    text = first.value if isinstance(first.value, str) else first.value.decode("latin-1")
                    yield str(path.relative_to(ROOT)), node.lineno, text


def took(found: re.Pattern[str], text: str) -> float:
    """Seconds of the processor for one text by each way of using it."""
    begun = time.thread_time()
    found.fullmatch(text)
    for _ in found.finditer(text):
        pass
    return time.thread_time() - begun


def worst(found: re.Pattern[str]) -> tuple[float, float, str]:
    """The largest growth from one size to twice of it, the seconds for the longest text, and its pieces."""
    worst_so_far = (0.0, 0.0, "")
    if not re.search(r"[*+]|,\}", found.pattern):
        return worst_so_far  # it looks at no more than so many characters
    for (one, two), end in product(product(("", *_PIECES), _PIECES), _ENDS):
        pump = one + two
        if took(found, pump * (_SIZES[0] // len(pump)) + end) < _NOTICED_S:
            continue
        times = [min(took(found, pump * (size // len(pump)) + end) for _ in range(2)) for size in _SIZES[:2]]
        if times[-1] < _TOO_LONG_S:
            times.append(took(found, pump * (_SIZES[2] // len(pump)) + end))
        growth = times[-1] / max(times[-2], 1e-9)
        if times[-1] > worst_so_far[1]:
            worst_so_far = (growth, times[-1], repr(pump + " … " + end))
    return worst_so_far


def main() -> None:
    """Print those that do not grow with their text alone; all into a JSON file where one is named."""
    rows = []
    for path, line, text in expressions():
        growth, seconds, of = worst(re.compile(text))
        rows.append({"file": path, "line": line, "growth": round(growth, 1), "seconds": seconds, "of": of})
        if growth > 3:
            sys.stdout.write(f"{path}:{line}: times {growth:.1f} for twice the text, {seconds:.3f} s: {of}\n")
            sys.stdout.flush()
    slow = max((row["seconds"] for row in rows), default=0)
    sys.stdout.write(f"{len(rows)} expressions; the longest over 4,000 characters took {slow:.3f} s\n")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
