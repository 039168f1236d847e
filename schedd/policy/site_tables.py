"""Tables of the site's policy that the file and the engine read alike: windows and limits."""

from collections.abc import Iterator
from datetime import date, datetime
from functools import lru_cache
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from schedd.policy.limits import Limit, LimitRule, label_scope
from schedd.policy.recurrence import Recurrence
from schedd.wire.section import Name, Section

_RULE = r"^[A-Za-z0-9=;,+-]*$"


def _zoneless(moment: datetime) -> datetime:
    if moment.tzinfo is not None:
        raise ValueError(f"{moment.isoformat()}: a time on the clock of the site's zone, without an offset")
    return moment


def _checked_window(text: str) -> str:
    try:
        return Recurrence.parse(text).text
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{text}: {error}; write the begin and end of the first window, a rule of RFC 5545 or once, and "
            "a time zone: 2026-01-05T08:00/2026-01-05T18:00 FREQ=DAILY Europe/Berlin"
        ) from None


WindowText = Annotated[str, AfterValidator(_checked_window)]
"""A recurring window in one line."""
VARIABLE_TABLES: Final = ("priority", "classes", "formula", "node_choice", "preemption")
"""Tables of the site's policy that may be others at certain times."""
OptionalName = Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{0,255}$")]
LocalTime = Annotated[datetime, AfterValidator(_zoneless)]


class WindowSettings(Section):
    """A recurring window of time, in local time of the site's zone."""

    first: LocalTime | None = None
    """Start of the first window of validity, in local time of `zone`: `2026-01-05T08:00:00`.
    Without it, it always applies."""
    last: LocalTime | None = None
    """End of the first window."""
    rule: Annotated[str, Field(pattern=_RULE, max_length=500)] = ""
    """Recurrence rule of the window (RFC 5545): `FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR`. Empty: it does not
    recur."""
    without: tuple[date, ...] = ()
    """Days without a start of the window: `[2026-12-24, 2026-12-25]`."""

    @model_validator(mode="after")
    def _validate_window(self) -> Self:
        if (self.first is None) != (self.last is None):
            raise ValueError("first and last are needed together")
        if self.first is None and (self.rule or self.without):
            raise ValueError("rule and without need first and last")
        if self.first is not None and self.last is not None:
            Recurrence(self.first, self.last, self.rule, without=self.without)  # raises RecurrenceError
        return self

    def window(self, zone: str) -> Recurrence | None:
        """Return the window on the clock of this zone; None: always. Raises RecurrenceError."""
        if self.first is None or self.last is None:
            return None
        return recurring_window(self.first, self.last, self.rule, zone, self.without)


recurring_window: Final = lru_cache(maxsize=256)(Recurrence)


class SiteLimitSettings(LimitRule, WindowSettings):
    """A limit on use at once, at every moment of the plan; the server's run limits apply in addition.
    With `counts` it limits waiting jobs, or use over time. See docs/administrators/policy.md.
    """

    amount: Annotated[int, Field(ge=0, le=1 << 48)] | None = None
    """The limit; memory in KiB. Needed unless there is `soft`."""
    soft: Annotated[int, Field(ge=0, le=1 << 48)] | None = None
    """A lower limit: jobs beyond it are planned after all other jobs."""
    counts: Literal["running", "eligible", "submitted", "used"] = "running"
    who: Literal["all", "user", "group", "account", "project"] = "all"
    what: Name = "jobs"
    name: OptionalName = ""
    queue: OptionalName = ""
    qos: OptionalName = ""
    """Only the jobs of this QOS (`[qos.levels.NAME]`)."""
    partition: OptionalName = ""
    """Only the jobs in this partition (`[partitions.sets.NAME]`); not together with `qos`."""

    @model_validator(mode="after")
    def _name_someone(self) -> Self:
        if self.name and self.who == "all":
            raise ValueError(f"name {self.name!r} needs who: user, group, account or project")
        return self

    @model_validator(mode="after")
    def _count_something(self) -> Self:
        if self.amount is None and self.soft is None:
            raise ValueError("amount or soft must be set")
        if self.amount is not None and self.soft is not None and self.soft > self.amount:
            raise ValueError(f"soft ({self.soft}) must not be more than amount ({self.amount})")
        if self.soft is not None and self.counts != "running":
            raise ValueError(f"soft is for counts = running, not {self.counts}")
        if self.first is not None and (self.counts != "running" or self.soft is not None):
            raise ValueError("a limit with first and last counts what is running, and has no soft")
        seconds = self.what in ("walltime", "cpu_seconds", "gpu_seconds", "node_seconds")
        if self.counts == "used" and not seconds:
            units = "cpu_seconds, gpu_seconds, node_seconds or walltime"
            raise ValueError(f"use over time is counted in {units}, not {self.what}")
        if self.counts in ("eligible", "submitted") and self.what not in ("jobs", "cpus", "nodes", "gpus"):
            raise ValueError(f"counts = {self.counts} is for jobs, cpus, nodes or gpus, not {self.what}")
        if self.counts != "used" and (self.period or self.half_life):
            raise ValueError("period and half_life are for counts = used")
        if self.period and self.half_life:
            raise ValueError("one of period and half_life must be set, not both")
        return self

    def limits(self, zone: str) -> Iterator[Limit]:
        """Yield the hard limit and the soft limit, with windows on the clock of this zone."""
        rule = {name: getattr(self, name) for name in LimitRule.model_fields}
        labels = {"qos": self.qos, "partition": self.partition}
        scope = next((label_scope(kind, name) for kind, name in labels.items() if name), "")
        if self.amount is not None:
            window = self.window(zone)
            during = window.text if window is not None else ""
            yield Limit(**rule, scope=scope, amount=self.amount, during=during)
        if self.soft is not None:
            yield Limit(**{**rule, "counts": "soft"}, scope=scope, amount=self.soft)
