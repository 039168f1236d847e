"""Settings of the priority formula: ``[clusters.NAME.site.formula]``."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from schedd.policy.expressions import MAX_LENGTH, parse_formula
from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Section


def _checked(text: str) -> str:
    if text.strip():
        parse_formula(text)  # raises a ValueError with column and remedy
    return text


class FormulaSettings(Section):
    """A formula ranks the jobs, in place of the weights of `[clusters.NAME.site.priority]`. See
    docs/administrators/formula.md.
    """

    expression: Annotated[str, Field(max_length=MAX_LENGTH), AfterValidator(_checked)] = ""
    """The formula, in the syntax of OpenPBS's `job_sort_formula`:
    `"10 * queue_priority + eligible_time / 3600"`. It wins over the server's formula and threshold."""
    threshold: Annotated[float, Field(ge=-1e300, le=1e300, allow_inf_nan=False)] | None = None
    """Only jobs with a higher value are planned. It wins over the server's
    `job_sort_formula_threshold`."""
    from_server: bool = True
    """Without `expression`, the server's `job_sort_formula` and `job_sort_formula_threshold` count
    (OpenPBS)."""


SETTINGS: Final = FeatureSettings(
    table="formula",
    model=FormulaSettings,
    about="Formula that ranks jobs: `[clusters.main.site.formula]`.",
    heading="Priorities and fair share",
)
