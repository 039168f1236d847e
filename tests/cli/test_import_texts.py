"""Texts of ``schedd import`` that deny something: they name the feature that there is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import schedd
from schedd.feature_list import feature_modules

SOURCES: Final = Path(schedd.__file__).parent
DENIAL: Final = re.compile(r"\b(no|not|never|none|only|neither|there is no|another one)\b", re.IGNORECASE)
MIN_LENGTH: Final = 12
SUBJECTS: Final = {
    "accounts": r"allocations?\b|budget|\bbank\b|without an account",
    "bookings": r"make reservations",
    "federation": r"other servers",
    "formula": r"priority (has no weight )?by\b|negative priority",
    "limits": r"hard (bound|limit)\b.*\buse\b|usage is not|soft limits",
    "node_choice": r"another one may|nodes are chosen|earliest start those",
    "normalised_walltimes": r"speeds?\b.*walltimes|walltimes\b.*speeds?\b",
    "power_saving": r"switched (on|off)",
    "preemption": r"preempt(?!_| others\b|ed as soon)|jobs are (never )?stopped|stopped for others",
}
"""By the name that the text must contain: what the denied thing is called."""
WITHOUT: Final = frozenset(
    {
        "choose",
        "deadline_forecasts",
        "deadlines",
        "fair_share",
        "licences",
        "moldable",
        "node_trials",
        "notices",
        "partitions",
        "periods",
        "prediction",
        "qos",
        "refused_cores",
        "reservations",
        "walltime_extensions",
    }
)
"""Tables of features that no text of an import denies."""


def texts(source: str) -> Iterator[str]:
    """The texts of a module, without documentation."""
    tree = ast.parse(source)
    documents = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    parts = {id(part) for one in ast.walk(tree) if isinstance(one, ast.JoinedStr) for part in one.values}
    for one in ast.walk(tree):
        if isinstance(one, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in one.values)
        elif (
            isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in documents | parts
        ):
            yield one.value


def false_denials(source: str) -> list[str]:
    """Texts that deny something of a feature and do not name the feature."""
    return [
        f"{name}: {text}"
        for text in texts(source)
        if len(text) >= MIN_LENGTH and " " in text and DENIAL.search(text)
        for name, subject in SUBJECTS.items()
        if re.search(subject, text, re.IGNORECASE) and not re.search(rf"(?<!no ){name}\b", text)
    ]


def importers() -> list[Path]:
    return [*(SOURCES / "cli/importing").glob("*.py"), *(SOURCES / "features").glob("*/importing.py")]


@pytest.mark.parametrize("path", importers(), ids=lambda path: path.stem)
def test_no_text_denies_a_feature_that_there_is(path: Path) -> None:
    assert false_denials(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "nodes are never switched on or off",
        "running jobs are never stopped",
        "allocations are not managed here",
        "soft limits have no effect here: there is no preemption",
        "see speeds: they count in fair share, not in walltimes",
        "where several nodes are free, another one may be taken",
    ],
)
def test_a_false_denial_is_found(text: str) -> None:
    assert false_denials(f"MESSAGE = {text!r}")
    assert false_denials(f"message = f'{{name}}: {text}'")


def test_every_feature_with_settings_is_known() -> None:
    found = [getattr(module, "SETTINGS", None) for module in feature_modules("settings")]
    tables = {one.table for one in found if one is not None}
    assert tables - SUBJECTS.keys() - WITHOUT == set()
