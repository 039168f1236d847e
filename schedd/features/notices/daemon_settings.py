"""Settings of notices: ``[notify]``."""

from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from schedd.service.settings.feature_tables import DaemonTable
from schedd.wire.section import Section


class NotifySettings(Section):
    """Mail and commands for notices that users request with `schedd notify`. Without a relay and without
    commands none are sent. Changes need a restart.
    """

    relay: str = Field(default="", pattern=r"^([^\s:]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}$|^$")
    """`HOST:PORT` of a mail relay that accepts mail from this host; empty: no mail."""
    starttls: bool = False
    """Require TLS (STARTTLS); without it nothing is sent. The relay's certificate must be trusted by this
    host or by `ca_file`."""
    ca_file: Path | None = None
    """CA certificates (PEM) for the relay; default: the system's."""
    user: str = Field(default="", max_length=320)
    """Login at the relay; empty: no login. Only with `starttls`."""
    password_file: Path | None = None
    """File with the password of `user`. Only the daemon's user may have access to it."""
    sender: str = Field(default="", pattern=r"^[^\s@<>,]+@[^\s@<>,]+$|^$")
    """Sender address, such as `schedd@example.org`."""
    domains: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,253}$")], ...] = ()
    """Mail goes only to addresses in these domains; the default address is USER@ the first."""
    commands: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")], tuple[str, ...]] = Field(
        default_factory=dict
    )
    """Commands that users may choose by name: `{ sms = ["/usr/local/bin/sms"] }`. Each gets the notice as
    JSON on its standard input, and no data as arguments."""
    most: int = Field(default=20, ge=1, le=1_000)
    """Maximum number of notices of one user."""
    hourly: int = Field(default=20, ge=1, le=10_000)
    """Maximum number of notices sent to one user in an hour. Further ones wait, and then report the state at
    that time.
    """

    @property
    def on(self) -> bool:
        """Whether notices can be sent."""
        return bool(self.relay or self.commands)

    @model_validator(mode="after")
    def _can_be_sent(self) -> Self:
        if self.relay and not (self.sender and self.domains):
            raise ValueError("relay needs a sender, and the domains to which mail may go")
        if bool(self.user) != (self.password_file is not None):
            raise ValueError("user and password_file belong together")
        if self.user and not self.starttls:
            raise ValueError("user: a password is sent only over TLS: set starttls = true")
        if self.ca_file is not None and not self.starttls:
            raise ValueError("ca_file has an effect only with starttls = true")
        for name, command in self.commands.items():
            if not command or not command[0].startswith("/"):
                raise ValueError(f"commands.{name}: write a list of words; the first one is an absolute path")
        return self


def _database_reason(settings: NotifySettings) -> str:
    return "notices need a database" if settings.on else ""


def _advice(settings: NotifySettings) -> Iterator[str]:
    for name, command in settings.commands.items():
        if which(command[0]) is None:
            yield (
                f"commands.{name}: {command[0]} cannot be run on this host; notices by this command are "
                "not sent"
            )


DAEMON_SETTINGS: Final = DaemonTable(
    table="notify",
    model=NotifySettings,
    heading="Notices and webhooks",
    database_reason=_database_reason,
    advice=_advice,
)
