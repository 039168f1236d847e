"""Settings of licences: ``[clusters.NAME.site.licences]``."""

from collections.abc import Iterator, Mapping
from shutil import which
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from schedd.policy.feature_settings import FeatureSettings
from schedd.policy.limits import Limit
from schedd.wire.section import Section
from schedd.wire.times import Whole


class LicenceSettings(Section):
    """A licence, or another resource of the whole cluster, that the server does not count."""

    copies: Annotated[int, Field(ge=0, le=1 << 48)] | None = None
    """Number of copies."""
    command: tuple[str, ...] = ()
    """Program with arguments that prints the number of copies on its first line. If `copies` is set, too, the
    lower number counts."""
    every: Whole = Field(default=60, ge=5, le=86_400)
    """Time between two runs of the program. It has 10 seconds to answer."""
    free: bool = False
    """The program prints the number of free copies, not of all (as `server_dyn_res` of OpenPBS)."""
    lent: bool = False
    """A federation lends the copies; none until it has. If `copies` is set, too, the lower number counts."""
    stale: Whole = Field(default=600, ge=10, le=7 * 86_400)
    """Time without an answer after which an alert says that the count is out of date; the last count stays in
    force."""

    @model_validator(mode="after")
    def _be_known(self) -> Self:
        if self.copies is None and not self.command and not self.lent:
            raise ValueError("copies, command or lent must be set")
        if self.command and self.lent:
            raise ValueError("set either command or lent, not both")
        return self


def _fixed_limits(licences: Mapping[str, LicenceSettings], _: str) -> Iterator[Limit]:
    for name, one in licences.items():
        if one.copies is not None:
            yield Limit(amount=one.copies, what=name)


def _advice(plain: Mapping[str, Any]) -> Iterator[str]:
    for name, licence in (plain.get("licences") or {}).items():
        command = licence.get("command")
        if command and which(command[0]) is None:
            yield f"licences.{name}: {command[0]} cannot be run here; none is counted"


SETTINGS: Final = FeatureSettings(
    table="licences",
    model=LicenceSettings,
    entry="LICENCE",
    about="Licences, by name: `[clusters.main.site.licences.matlab]`.",
    heading="Limits and licences",
    limits=_fixed_limits,
    advice=_advice,
)
