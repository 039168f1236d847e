"""Comparison of settings at a reload: each change applies at once or at a restart."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from schedd.service.settings.changes import compare_settings
from schedd.service.settings.cluster import ClusterSettings
from schedd.service.settings.file import Settings

BASE = Settings(auth={"anonymous": "reader"})  # type: ignore[arg-type]


def different_value(value: Any) -> Any:
    """Return another value, which need not be valid."""
    if isinstance(value, BaseModel):
        name = next(iter(type(value).model_fields))
        return value.model_copy(update={name: different_value(getattr(value, name))})
    return Path("/other") if value is None else ("other",) if isinstance(value, tuple) else f"not {value}"


def settings_with_change(section: str, field: str) -> Settings:
    before = getattr(BASE, section)
    changed = before.model_copy(update={field: different_value(getattr(before, field))})
    return BASE.model_copy(update={section: changed})


SECTIONS = [name for name in Settings.model_fields if name not in ("clusters", "webhooks")]


@pytest.mark.parametrize(
    ("section", "field"), [(one, name) for one in SECTIONS for name in type(getattr(BASE, one)).model_fields]
)
def test_every_setting_applies_at_once_or_at_a_restart(section: str, field: str) -> None:
    new = settings_with_change(section, field)
    found = compare_settings(BASE, new)
    name = f"{section}.{field}"
    waits = section in ("server", "store", "notify")
    assert (found.now, found.restart) == (((), (name,)) if waits else ((name,), ()))
    assert getattr(found.settings, section) == getattr(BASE if waits else new, section)
    # A change that needs a restart is reported at the next reload, too.
    again = compare_settings(found.settings, new)
    assert (again.now, again.restart) == ((), found.restart)


@pytest.mark.parametrize("field", ClusterSettings.model_fields)
def test_cluster_settings_apply_at_once_except_the_policy(field: str) -> None:
    before = BASE.clusters["main"]
    changed = before.model_copy(update={field: different_value(getattr(before, field))})
    found = compare_settings(BASE, BASE.model_copy(update={"clusters": {"main": changed}}))
    name = f"clusters.main.{ClusterSettings.model_fields[field].alias or field}"
    if field == "policy":
        assert (found.now, found.restart) == ((), (name,))
        assert found.settings.clusters["main"] == before
    else:
        assert found.restart == ()
        assert len(found.now) == 1
        assert found.now[0].startswith(f"{name} ")
        assert found.settings.clusters["main"] == changed


def test_added_and_removed_clusters_need_a_restart() -> None:
    new = BASE.model_copy(update={"clusters": {"east": ClusterSettings()}})
    found = compare_settings(BASE, new)
    assert (found.now, found.restart) == ((), ("clusters.east", "clusters.main"))
    assert found.settings == BASE


def test_reported_changes_contain_no_secrets() -> None:
    new = BASE.model_copy(update={"auth": BASE.auth.model_copy(update={"tokens": ("geheim",)})})
    assert compare_settings(BASE, new).now == ("auth.tokens",)
    store = BASE.store.model_copy(update={"url": "postgresql://x:geheim@y/z"})
    assert compare_settings(BASE, BASE.model_copy(update={"store": store})).restart == ("store.url",)


def test_equal_settings_have_no_changes() -> None:
    assert (compare_settings(BASE, BASE).now, compare_settings(BASE, BASE).restart) == ((), ())
