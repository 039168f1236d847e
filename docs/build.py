"""Writes the reference in docs/commands.md and the types of schedd/client/answers, and checks the links."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from docs.answers import write
from schedd.cli.manual import reference

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _anchors(text: str) -> set[str]:
    """The anchors that a renderer in GitHub's manner gives to the headings of `text`."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(_FENCE.sub("", text)))
    return {heading.strip().replace(" ", "-") for heading in kept}


def broken_links(root: Path) -> Iterator[str]:
    """One sentence per relative link in a Markdown file below `root` whose file or heading is missing."""
    for page in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
        text = page.read_text(encoding="utf-8")
        for link in _LINK.findall(_FENCE.sub("", text)):
            if re.match(r"[a-z][a-z0-9+.-]*:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists():
                yield f"{page.relative_to(root)}: no such file: {link}"
            elif anchor and target.suffix == ".md" and anchor not in _anchors(target.read_text("utf-8")):
                yield f"{page.relative_to(root)}: no such heading: {link}"


def with_reference(text: str) -> str:
    """The page of commands with its reference, which follows the heading of that name, as it is now."""
    head = text.partition("\n## Reference\n")[0]
    return f"{head}\n## Reference\n\n{reference()}"


def main() -> int:
    """Prints what is broken; the exit code is 1 if anything is."""
    write(ROOT / "schedd" / "client" / "answers")  # first: the commands need them
    page = ROOT / "docs" / "commands.md"
    page.write_text(with_reference(page.read_text("utf-8")), "utf-8")
    broken = list(broken_links(ROOT))
    for line in broken:
        print(line)
    print(f"documents checked, {len(broken)} broken links")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
