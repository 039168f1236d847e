"""The settings reference documents every setting with its default; sites can set every engine setting."""

import importlib
import pkgutil
import re
import sys

import pytest
from pydantic import BaseModel

from docs.scripts.build import settings_page
from schedd.cli.config_actions import ADAPTER_SECTIONS
from schedd.engine import EngineSettings
from schedd.policy.engine_settings import (
    SITE_PUBLISH_HOLD,
    SITE_PUBLISH_PAUSE,
    SITE_SLACK,
    SITE_START_RATE,
    SITE_START_RATE_NODE,
)
from schedd.service.settings.cluster import ClusterSettings
from schedd.service.settings.file import Settings
from schedd.service.settings.reference import DECIDE, FEATURES, NEEDED, SECTIONS, needed
from schedd.wire.field_docstrings import setting_descriptions
from server_adapter.settings import AdapterSettings
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")


def test_settings_page_is_up_to_date() -> None:
    assert settings_page(PAGE) == PAGE, "run `make docs`"


def test_every_section_and_cluster_setting_belongs_to_a_single_feature() -> None:
    entries = [entry for feature in FEATURES.values() for entry in feature]
    sections = [entry for entry in entries if isinstance(entry, str)]
    assert sorted([*sections, "[clusters.NAME]"]) == sorted(SECTIONS)
    settings = [name for entry in entries if isinstance(entry, tuple) for name in entry]
    assert sorted(settings) == sorted(
        field.alias or name for name, field in ClusterSettings.model_fields.items()
    )


@pytest.mark.parametrize("name", SECTIONS)
def test_every_setting_has_a_description(name: str) -> None:
    for setting, text in setting_descriptions(SECTIONS[name]).items():
        assert len(text) > 10, setting


def test_every_section_is_documented() -> None:
    sections = {name.strip("[]").partition(".")[0] for name in SECTIONS}
    assert sections == set(Settings.model_fields)


def test_cluster_settings_match_engine_settings_except_some_defaults() -> None:
    expected = EngineSettings.model_validate(
        {
            "slack": str(SITE_SLACK),
            "start_rate": SITE_START_RATE,
            "start_rate_node": SITE_START_RATE_NODE,
            "publish_pause": SITE_PUBLISH_PAUSE,
            "publish_hold": SITE_PUBLISH_HOLD,
            "predict": True,
        }
    )
    assert ClusterSettings().engine == expected
    elsewhere = {"mode", "publish_starts", "silent", "weights"}
    assert set(ClusterSettings().model_dump(by_alias=True)) | elsewhere == set(
        EngineSettings().model_dump(by_alias=True)
    )


def declared_fields(kind: type) -> set[str]:
    """The fields that the class itself declares, without inherited ones."""
    return {name for name in vars(kind).get("__annotations__", {}) if not name.startswith("_")}


ACCESS_LISTS = {"users", "groups", "accounts", "queues"}
"""Many settings, facts and messages have such lists; each says who may use another thing."""
OTHER_THINGS = {
    ("PrioritySettings", "Applicant"),  # weights of terms, and the terms of a job
}
"""Pairs of classes with some equal names for other things."""


def test_each_setting_is_declared_once() -> None:
    """At least three fields of the same names in an unrelated class count as a second declaration."""
    for package in ("schedd.engine", "schedd.policy", "schedd.features"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not re.search(r"\.(api|page|command|background|component)$", module.name):
                importlib.import_module(module.name)
    own = re.compile(r"schedd\.(engine|policy)\.|schedd\.features\.\w+\.(?!api$|page$|command$|background$)")
    kinds = {
        kind
        for name, module in list(sys.modules.items())
        if own.match(name)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == name
    } - {*SECTIONS.values()}
    found = {}
    for section in SECTIONS.values():
        for kind in kinds:
            again = declared_fields(section) & declared_fields(kind) - ACCESS_LISTS
            if len(again) >= 3 and not issubclass(section, kind):
                found[section.__name__, kind.__name__] = again
    assert found.keys() == OTHER_THINGS


@pytest.mark.parametrize("name", ADAPTER_SECTIONS)
def test_every_adapter_setting_is_documented(name: str) -> None:
    for setting, text in setting_descriptions(ADAPTER_SECTIONS[name]).items():
        assert len(text) > 10, setting


def test_every_adapter_section_is_documented() -> None:
    tables = {name for name, field in AdapterSettings.model_fields.items() if is_table(field.annotation)}
    assert {name.rpartition(" ")[2].strip("[]") for name in ADAPTER_SECTIONS} == tables | {"pbs-adapter.toml"}


def is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def test_first_25_reference_settings_exist() -> None:
    assert len(DECIDE) == 10
    assert len(NEEDED) == 25 == len(set(NEEDED))
    assert PAGE.index(needed(ADAPTER_SECTIONS)) < PAGE.index("### `[server]`")
    for one in NEEDED:
        section, _, name = one.rpartition(" ")
        assert name in {**SECTIONS, **ADAPTER_SECTIONS}[section].model_fields, one
