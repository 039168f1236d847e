"""Settings of policy periods: ``[clusters.NAME.site.periods]``."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from schedd.policy.feature_settings import FeatureSettings, feature_settings
from schedd.policy.priority import JobClass, PrioritySettings
from schedd.policy.site import site_policy
from schedd.policy.site_tables import VARIABLE_TABLES, WindowText
from schedd.wire.section import Name, Section, problem_text

_PeriodName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,62}$")]


class Period(Section):
    """Rules for certain times. If several periods contain a moment, the first one counts. See
    docs/administrators/policy.md.
    """

    windows: Annotated[tuple[WindowText, ...], Field(min_length=1)]
    """Times of the period, each as `2026-01-05T20:00/2026-01-06T08:00 FREQ=DAILY Europe/Berlin`."""
    tables: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    """Tables that are in force in place of the site's tables of the same name: `priority`, `classes`,
    `formula`, `node_choice`, `preemption`. An empty table has the defaults."""

    @model_validator(mode="after")
    def _check_tables(self) -> Self:
        if not self.tables:
            raise ValueError(f"it has no effect: set a table of {', '.join(VARIABLE_TABLES)}")
        for name, table in self.tables.items():
            check = _table_checks().get(name)
            if check is None:
                raise ValueError(f"tables.{name} cannot be replaced; these can: {', '.join(_table_checks())}")
            try:
                check.validate_python(table)
            except ValidationError as error:
                raise _placed_below(("tables", name), error) from None
        return self


@cache
def _table_checks() -> Mapping[str, TypeAdapter[Any]]:
    """The checks of tables that a period may replace, by name."""
    models: dict[str, Any] = {"priority": PrioritySettings, "classes": dict[Name, JobClass]}
    models |= {one.table: one.model for one in feature_settings()}
    return {name: TypeAdapter(models[name]) for name in VARIABLE_TABLES if name in models}


def _placed_below(place: tuple[str, ...], error: ValidationError) -> ValidationError:
    """Return the errors with the place of their table."""
    found = [
        InitErrorDetails(
            type=PydanticCustomError("table", "{reason}", {"reason": problem_text(one)}),
            loc=(*place, *one["loc"]),
            input=one["input"],
        )
        for one in error.errors()
    ]
    return ValidationError.from_exception_data("Period", found)


class PeriodSettings(Section):
    """Rules that apply only at certain times, such as prime and non-prime time. At the beginning and the end
    of a period all waiting jobs are examined again, as after any change of the policy.
    """

    sets: dict[_PeriodName, Period] = Field(default_factory=dict)
    """The periods, by name: `[clusters.main.site.periods.sets.night]`."""


def with_period(plain: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy with the tables of a period in place of its own, as plain values without periods."""
    return {**{name: table for name, table in plain.items() if name != "periods"}, **tables}


def _check_site(plain: Mapping[str, Any]) -> None:
    """Raise ValueError for a period whose tables contradict the rest of the policy."""
    for name, period in ((plain.get("periods") or {}).get("sets") or {}).items():
        merged = with_period(plain, period.get("tables") or {})
        try:
            site_policy(merged)
            for one in feature_settings():
                if one.check is not None:
                    one.check(merged)
        except ValueError as error:
            raise ValueError(f"periods.sets.{name}: {error}") from None


SETTINGS: Final = FeatureSettings(
    table="periods",
    model=PeriodSettings,
    about="Rules for certain times: `[clusters.main.site.periods]`.",
    heading="Rules by time",
    check=_check_site,
    tables={"sets.PERIOD": Period},
)
