"""Which logs a study runs, and where its results go."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.versions import version_of
from schedd.replay.workload import TraceError


def chosen(known: Collection[str], only: Sequence[str], logs: Path) -> list[str]:
    """Return the ``known`` logs with names that begin with ``only``; without it all.

    Raises TraceError if there is none, or one is not in the folder ``logs``.
    """
    names = [name for name in known if name.startswith(tuple(only or [""]))]
    if not names:
        raise TraceError(f"--only {' '.join(only)}: the experiment has no such log")
    present(names, logs)
    return names


def present(names: Collection[str], logs: Path) -> None:
    """Raises TraceError for logs that are not in the folder."""
    lacking = [name for name in names if not (logs / name).exists()]
    if lacking:
        raise TraceError(f"--logs {logs}: it has no {', '.join(lacking)} (see research/results)")


@dataclass(frozen=True, slots=True)
class Results:
    """The files of a study's results in ``out``, with the ``command`` and the ``sources`` that make them."""

    out: Path
    stem: str
    about: str
    command: str
    sources: str

    @classmethod
    def of(cls, name: str, about: str, out: Path, *options: str, quick: bool) -> "Results":
        """``options`` are the command's options except for its name and ``--quick``. Makes the folder."""
        out.mkdir(parents=True, exist_ok=True)
        words = ("python -m research experiment", name, *(["--quick"] if quick else []), *options)
        stem = f"{name}-quick" if quick else name
        return cls(out, stem, about, " ".join(words), version_of(f"research.studies.{name}"))

    @property
    def picture(self) -> Path:
        """Where the picture goes; the page names it without its folder."""
        return self.out / f"{self.stem}.png"

    def rows_of_others(self, key: str, values: Collection[str]) -> list[dict[str, Any]]:
        """Return the rows of earlier runs, with their ``sources``, without those with these values."""
        path = self.out / f"{self.stem}.json"
        if not path.exists():
            return []
        known = json.loads(path.read_text(encoding="utf-8"))
        older = {"sources": known.get("sources", "")}
        return [older | row for row in known["results"] if row[key] not in values]

    def write(self, figures: Mapping[str, Any], body: str, what: str) -> None:
        """Write the figures, and the page with its head; print where ``what`` is.

        ``sources`` in ``figures`` replaces that of these results, if other sources found some of them.
        """
        document = {"command": self.command, "sources": self.sources, **figures}
        (self.out / f"{self.stem}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        head = f"# Experiment: {self.stem}\n\n{self.about}\n\n```\n{self.command}\n```\n\n"
        page = f"{head}Version of the sources: {document['sources']}.\n\n{body}"
        (self.out / f"{self.stem}.md").write_text(page, encoding="utf-8")
        picture = ", .png" if self.picture.exists() else ""
        print(f"{what} in {self.out / self.stem}.md, .json{picture}")
