"""Attributes of OpenPBS's server and schedulers that the priority formula follows, for `schedd import`."""

from collections.abc import Callable, Mapping
from typing import Final

from schedd.cli.importing.result import ImportResult, Verdict
from schedd.features.formula.terms import unknown_names
from schedd.policy.expressions import FormulaError, parse_formula
from schedd.policy.protocol import FAIR_SHARE_TERMS
from schedd.wire import ResourceTypes

_Note = Callable[[Verdict, str], None]


def _translate_formula(text: str, types: ResourceTypes, done: ImportResult, note: _Note) -> None:
    def differs(terms: str, message: str) -> None:
        done.note(Verdict.DIFFERS, 0, f"{terms} in job_sort_formula", message, "server")

    try:
        expression = parse_formula(text.strip().strip('"').strip())
    except FormulaError as error:
        note(Verdict.BLOCKER, f"{error}; see docs/administrators/formula.md")
        return
    done.site.pop("priority", None)  # the formula takes the place of the keys of a sched_config
    note(Verdict.TRANSLATED, "read from the server: jobs are ranked by it, as it is")
    missing = list(unknown_names(expression, types))
    if missing:
        differs(", ".join(missing), "no term and no resource of the server; it counts as 0")
    if "eligible_time" in expression.names:
        differs("eligible_time", "it counts from etime, and does not stop while a job is over a limit")
    used = sorted(FAIR_SHARE_TERMS & expression.names)
    if used and "fair_share" not in done.site:
        differs(", ".join(used), "0 until there is a table fair_share with the shares")


def _translate_threshold(text: str, _: ResourceTypes, done: ImportResult, note: _Note) -> None:  # noqa: ARG001
    try:
        float(text)
    except ValueError:
        note(Verdict.BLOCKER, "it is no number: jobs below it would run")
        return
    note(Verdict.TRANSLATED, "read from the server: jobs at or below it are not planned, and say so")


SERVER_ATTRIBUTES: Final[Mapping[str, Callable[[str, ResourceTypes, ImportResult, _Note], None]]] = {
    "job_sort_formula": _translate_formula,
    "job_sort_formula_threshold": _translate_threshold,
}
"""By attribute of the server or a scheduler: adds findings about its value."""
