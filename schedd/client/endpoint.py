"""Where the daemon is and what to show it: from the environment, the user's files, the host's files.

For each setting, the first of these sources counts:

1. ``SCHEDD_URL``, ``SCHEDD_TOKEN``, ``SCHEDD_CLUSTER``;
2. ``~/.config/schedd/client.toml`` (or below ``$XDG_CONFIG_HOME``) with ``url``, ``cluster``, ``token_file``
   ``munge`` (the path of a program that makes credentials, for users without a token) and ``ca_file``
   (certificates, PEM, that identify the daemon), and the token in ``~/.config/schedd/token``;
3. ``/etc/schedd/client.toml`` with the same settings;
4. the UNIX socket ``/run/schedd/schedd.sock`` where there is one, else ``http://127.0.0.1:8080``.
"""

import os
import stat
from collections.abc import Mapping
from typing import Final, NamedTuple

from schedd.client.errors import ClientError

DEFAULT_SOCKET: Final = "/run/schedd/schedd.sock"
DEFAULT_URL: Final = "http://127.0.0.1:8080"
_SETTINGS: Final = ("url", "cluster", "token_file", "munge", "ca_file")


class ConfigError(ClientError):
    """An invalid setting of the client: its name, its location, and the allowed values."""


class Endpoint(NamedTuple):
    """A daemon (``http://HOST:PORT[/ROOT]``, ``https://…``, ``unix:/PATH``), a cluster, and a token.

    Without a token, and not on a UNIX socket, the program ``munge`` makes the credentials, if it is set. An
    ``https`` daemon is verified by the certificates in ``ca_file`` (PEM), or by those of the host.
    """

    url: str
    token: str = ""
    cluster: str = ""
    munge: str = ""
    ca_file: str = ""


def find_endpoint(
    environment: Mapping[str, str] | None = None, host_files: str | os.PathLike[str] = "/etc/schedd"
) -> Endpoint:
    """The endpoint by environment and files. Raises ConfigError."""
    found = os.environ if environment is None else environment
    home = os.path.expanduser(found.get("HOME") or "~")
    folder = os.path.join(found.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "schedd")
    users = _read(os.path.join(folder, "client.toml"))
    hosts = _read(os.path.join(host_files, "client.toml"))
    both = {**hosts, **users}
    token = found.get("SCHEDD_TOKEN", "")
    if not token:
        named = both.get("token_file")
        file = os.path.expanduser(named) if named else os.path.join(folder, "token")
        token = _token(file, must=named is not None)
    url = found.get("SCHEDD_URL") or both.get("url") or ""
    if not url:
        url = f"unix:{DEFAULT_SOCKET}" if _is_socket(DEFAULT_SOCKET) else DEFAULT_URL
    cluster = found.get("SCHEDD_CLUSTER") or both.get("cluster", "")
    munge, ca_file = (os.path.expanduser(both.get(name, "")) for name in ("munge", "ca_file"))
    return Endpoint(url, token, cluster, munge, ca_file)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    import tomllib  # noqa: PLC0415 (needed only for such a file)

    try:
        settings = tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    for name, value in settings.items():
        if name not in _SETTINGS:
            raise ConfigError(f"{path}: no setting {name!r}; there is {', '.join(_SETTINGS)}")
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {name} must be a text in quotes")
    return settings


def _token(path: str, *, must: bool) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise ConfigError(f"{path}: others may read it (mode {mode:04o}); chmod 0600 {path}")
            return file.read().strip()
    except FileNotFoundError:
        if must:
            raise ConfigError(f"{path}: no such file, and token_file names it") from None
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the token cannot be read: {error}") from None
