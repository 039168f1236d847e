"""The effective settings as TOML, each with its source."""

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel
from sqlalchemy import make_url

from schedd.service.settings.file import Settings
from schedd.store.connections import redacted_url
from schedd.wire.times import written

_PREFIX: Final = "SCHEDD_"


def effective_settings(settings: Settings, path: Path | None) -> Iterator[str]:
    """Yield lines of TOML, without passwords, digests of tokens, and settings without a value."""
    file = tomllib.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    for section in Settings.model_fields:
        if section == "clusters":
            for name, cluster in settings.clusters.items():
                yield from _section(("clusters", name), cluster, file)
        elif section == "webhooks":
            for hook in settings.webhooks:
                yield "[[webhooks]]"
                for key, value in hook.model_dump().items():
                    value = written(type(hook).model_fields[key], value)
                    yield f"{key} = {_toml(_without_secrets(value) if key == 'url' else value)}"
                yield ""
        else:
            yield from _section((section,), getattr(settings, section), file)


def _section(where: tuple[str, ...], values: BaseModel, file: Mapping[str, Any]) -> Iterator[str]:
    given: Any = file
    for part in where:
        given = given.get(part, {})
    yield f"[{'.'.join(part if part.isidentifier() else json.dumps(part) for part in where)}]"
    nested: list[BaseModel] = []
    for name, field in type(values).model_fields.items():
        value = getattr(values, name)
        key = field.alias or name
        if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            nested += value
            continue
        if value is None:
            continue
        variable = _PREFIX + "__".join((*where, key))
        if any(name.upper() == variable.upper() for name in os.environ):
            source = f"  # from {variable.upper()}"
        else:
            source = "" if key in given else "  # default"
        yield f"{key} = {_toml(_hidden(where[0], key, written(field, value)))}{source}"
    yield ""
    for one in nested:  # tokens
        shown = {key: value for key, value in one.model_dump().items() if key != "sha256"}
        yield f"[[{'.'.join((*where, 'tokens'))}]]"
        yield from (f"{key} = {_toml(value)}" for key, value in shown.items())
        yield 'sha256 = "***"'
        yield ""


def _without_secrets(url: str) -> str:
    """Return the URL without user, password and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user, query = ("***@" if host != parts.netloc else ""), ("***" if parts.query else "")
    return urlunsplit((parts.scheme, user + host, parts.path, query, ""))


def _hidden(section: str, key: str, value: Any) -> Any:
    if section == "store" and key == "url" and "://" in value:
        return redacted_url(make_url(value))
    return value


def _toml(value: Any) -> str:
    if isinstance(value, Path | Enum):
        value = str(value)
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(str(key))} = {_toml(one)}" for key, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
