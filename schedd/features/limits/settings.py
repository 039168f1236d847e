"""Settings of limits: ``[[clusters.NAME.site.limits]]``."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from schedd.policy.feature_settings import FeatureSettings
from schedd.policy.limits import Limit, LimitRule, label_scope
from schedd.policy.site_tables import OptionalName, WindowSettings
from schedd.wire.section import Name


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


def _limits(tables: Mapping[str, SiteLimitSettings], zone: str) -> Iterator[Limit]:
    for one in tables.values():
        yield from one.limits(zone)


SETTINGS: Final = FeatureSettings(
    table="limits",
    model=SiteLimitSettings,
    listed=True,
    about="Limits on use at once, on waiting jobs, and on use over time: `[[clusters.main.site.limits]]`.",
    heading="Limits and licences",
    limits=_limits,
)
