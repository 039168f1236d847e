"""The adapter's settings: a TOML file, overridden by the command line."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    ValidationError,
    model_validator,
)

from schedd.wire import Mode


class SettingsError(Exception):
    """A setting that makes no sense: which one, where, and what is allowed."""


def _listed(value: object) -> object:
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else value


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(_Section):
    """How pbs_server is reached.

    `auth`: `privileged` (a source port below 1024: root or CAP_NET_BIND_SERVICE), `trqauthd`, `none` (an
    emulated server), or `auto`: privileged for root, else trqauthd. `logs` is the server's directory
    `server_logs`: a start that it logs at the request of anybody but `schedulers` was a `qrun`.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=15001, ge=1, le=65535)
    user: str = "root"
    auth: Literal["auto", "privileged", "trqauthd", "none"] = "auto"
    trqauthd: Path = Path("/tmp/trqauthd-unix")
    name: str = ""
    timeout: PositiveFloat = 30.0
    logs: Path | None = None
    schedulers: tuple[str, ...] = ("root", "Scheduler", "maui", "moab")


class ListenSettings(_Section):
    """Where pbs_server finds its scheduler. `peers` are the addresses it may call from."""

    host: str = "127.0.0.1"
    port: int = Field(default=15004, ge=0, le=65535)
    peers: tuple[str, ...] = ("127.0.0.1", "::1")
    any_port: bool = False


class DaemonSettings(_Section):
    """Where the daemon is, or a list: leader and standby, of which the one that leads is followed.

    `wait` is for how many seconds a question for decisions may stay open.
    """

    url: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)] = (
        "http://127.0.0.1:8080",
    )
    token_file: Path | None = None
    wait: float = Field(default=30.0, ge=0, le=60)


class PollSettings(_Section):
    """How often the server is read, in seconds: at the latest after `interval`, at the earliest after `gap`;
    a whole snapshot goes out every `snapshot` seconds.
    """

    interval: PositiveFloat = 5.0
    gap: PositiveFloat = 0.1
    snapshot: PositiveFloat = 600.0


class RunSettings(_Section):
    """How jobs are started. Rates are per second, `per_node` for each node; waits in seconds."""

    asynchronous: bool = True
    busy_retries: int = Field(default=3, ge=0, le=60)
    busy_wait: PositiveFloat = 1.0
    per_second: PositiveFloat = 50.0
    per_node: PositiveFloat = 10.0


class TellSettings(_Section):
    """What is written on jobs: `start_time` of queued jobs is opt-in, since portals may read it as started.

    `planned`: also planned_start and planned_nodes, where the server knows them. A start that moved by no
    more than `threshold` seconds is not written again.
    """

    comment: bool = True
    start_time: bool = False
    planned: bool = True
    threshold: int = Field(default=60, ge=0)
    per_second: PositiveFloat = 20.0


class Settings(_Section):
    """All of them; the defaults are those of the rules."""

    cluster: str = "main"
    mode: Mode = "shadow"
    state_dir: Path = Path("/var/lib/pbs-adapter")
    server: ServerSettings = ServerSettings()
    listen: ListenSettings = ListenSettings()
    daemon: DaemonSettings = DaemonSettings()
    poll: PollSettings = PollSettings()
    run: RunSettings = RunSettings()
    tell: TellSettings = TellSettings()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.poll.gap > self.poll.interval:
            raise ValueError("poll.gap must not be longer than poll.interval")
        if not all(url.startswith(("http://", "https://")) for url in self.daemon.url):
            raise ValueError("daemon.url must begin with http:// or https://")
        return self


def load_settings(path: Path | None, overrides: dict[str, Any]) -> Settings:
    """Settings from a TOML file (or none), with `overrides` such as `{"daemon.url": …}` on top.

    Raises `SettingsError`.
    """
    values: dict[str, Any] = {}
    where = "the command line" if path is None else str(path)
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} is no TOML file: {error}") from error
    for key, value in overrides.items():
        section, dot, name = key.rpartition(".")
        target = values
        if dot:
            target = values.setdefault(section, {})
            if not isinstance(target, dict):
                raise SettingsError(f"{where}: {section} must be a table, [{section}]")
        target[name] = value
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problems = [_in_words(item) for item in error.errors()]
        raise SettingsError(f"{where}: " + "; ".join(problems)) from error


def read_token(path: Path | None) -> str:
    """The token in the file, its first line; empty without a file. Raises `SettingsError`."""
    if path is None:
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"token file {path} cannot be read: {error}") from error
    if not token or len(token.split()) != 1:
        raise SettingsError(f"token file {path} must hold one token and nothing else")
    return token


def _in_words(item: Any) -> str:
    name = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"{name} is no setting"
    message = item["msg"].removeprefix("Value error, ")
    given = f" (it is {item['input']!r})" if name and not isinstance(item["input"], dict) else ""
    return f"{name}: {message}{given}" if name else message
