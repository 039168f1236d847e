"""Every setting is documented, with its default; the engine has none that a site cannot set."""

from dataclasses import asdict

import pytest
from pydantic import BaseModel

from schedd.cli.config import ADAPTER_SECTIONS
from schedd.engine import EngineSettings
from schedd.engine.facts.settings import (
    SITE_SLACK,
    SITE_SLACK_SHARE,
    SITE_START_RATE,
    SITE_START_RATE_NODE,
    SITE_TELL_PAUSE,
)
from schedd.service.settings.file import ClusterSettings, Settings
from schedd.service.settings.reference import DECIDE, SECTIONS, decisions, described, section
from server_adapter.settings import Settings as AdapterSettings
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SECTIONS)
def test_the_page_has_the_table_of_every_section(name: str) -> None:
    assert section(name) in PAGE


@pytest.mark.parametrize("name", SECTIONS)
def test_every_setting_is_explained(name: str) -> None:
    for setting, field in SECTIONS[name].model_fields.items():
        assert len(field.description or "") > 10, setting


def test_no_section_is_left_out() -> None:
    sections = {name.strip("[]").partition(".")[0] for name in SECTIONS}
    assert sections == set(Settings.model_fields)


def test_a_cluster_sets_exactly_what_the_engine_has_with_the_same_defaults_but_for_a_few() -> None:
    expected = EngineSettings(
        slack=SITE_SLACK,
        slack_share=SITE_SLACK_SHARE,
        start_rate=SITE_START_RATE,
        start_rate_node=SITE_START_RATE_NODE,
        tell_pause=SITE_TELL_PAUSE,
        predict=True,
    )
    assert asdict(ClusterSettings().engine) == asdict(expected)
    elsewhere = {"mode", "tell", "silent", "weights", "slack_share"}
    assert set(ClusterSettings().model_dump(by_alias=True)) | elsewhere == set(asdict(EngineSettings()))


@pytest.mark.parametrize("name", ADAPTER_SECTIONS)
def test_the_page_has_the_table_of_every_section_of_the_adapter(name: str) -> None:
    assert described(name, ADAPTER_SECTIONS[name]) in PAGE
    for setting, field in ADAPTER_SECTIONS[name].model_fields.items():
        assert len(field.description or "") > 10, setting


def test_no_section_of_the_adapter_is_left_out() -> None:
    tables = {name for name, field in AdapterSettings.model_fields.items() if is_table(field.annotation)}
    assert {name.rpartition(" ")[2].strip("[]") for name in ADAPTER_SECTIONS} == tables | {"pbs-adapter.toml"}


def is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def test_ten_settings_come_first_and_each_is_one_there_is() -> None:
    assert len(DECIDE) == 10
    assert decisions() in PAGE
    assert PAGE.index(decisions()) < PAGE.index("## `[server]`")
    for one in DECIDE:
        section, _, name = one.setting.rpartition(" ")
        assert name in {**SECTIONS, **ADAPTER_SECTIONS}[section].model_fields, one.setting
