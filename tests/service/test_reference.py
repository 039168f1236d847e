"""Every setting is documented, with its default; the engine has none that a site cannot set."""

from dataclasses import asdict

import pytest

from schedd.engine import EngineSettings
from schedd.engine.settings import SITE_SLACK, SITE_SLACK_SHARE
from schedd.service.reference import SECTIONS, section
from schedd.service.settings import ClusterSettings, Settings
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


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


def test_a_cluster_sets_exactly_what_the_engine_has_with_the_same_defaults_but_for_slack() -> None:
    expected = EngineSettings(slack=SITE_SLACK, slack_share=SITE_SLACK_SHARE)
    assert asdict(ClusterSettings().engine) == asdict(expected)
    assert set(ClusterSettings().model_dump(by_alias=True)) == set(asdict(EngineSettings()))
