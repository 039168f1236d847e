"""What checkjob, the job's page, previews and what-ifs show of the formula."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import structlog
from fastapi import FastAPI

from schedd.api.app import create_app
from schedd.cli.main import main
from schedd.engine import EngineSettings
from schedd.policy.site import site_policy
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from tests.api.conftest import token, tokens
from tests.api.served_app import serving
from tests.service.planner_harness import StillClock, job, node
from tests.waits import WAIT_S

SITE = {"formula": {"expression": "job_priority + walltime / 100 - 1 / (job_priority - 9)", "threshold": -5}}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    warm_up()
    return create_app(Clusters({}, StillClock()), tokens())


@pytest.fixture
def url(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    settings = EngineSettings(end_allowance=0, publish_starts=False, slack="100000", site=site_policy(SITE))
    clusters = Clusters({"main": settings}, StillClock())
    clusters.start(warm=False)
    app.state.clusters = clusters
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    for name, value in (("SCHEDD_TOKEN", token("admin")), ("COLUMNS", "100"), ("TZ", "UTC")):
        monkeypatch.setenv(name, value)
    time.tzset()
    loop = clusters["main"]
    loop.submit([node("n1", 8)]).result(WAIT_S)
    for name, priority in (("1", 0), ("2", 5), ("3", 9), ("4", -50)):
        arrival = job(f"{name}.srv", nodes="1:ppn=8", walltime="1000")
        loop.submit([replace(arrival, job=replace(arrival.job, priority=priority))]).result(WAIT_S)
    with structlog.testing.capture_logs(), serving(app, clusters) as found:
        monkeypatch.setenv("SCHEDD_URL", found)
        yield found
    clusters.stop()


def test_checkjob_shows_each_part_of_the_sum_and_each_value(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert url
    main(["checkjob", "2"])
    out = capsys.readouterr().out
    assert "Its value by formula.expression is 15.25:" in out
    assert "  +5  job_priority\n  +10  walltime / 100\n  +0.25  1 / (job_priority - 9)\n" in out
    assert "  with job_priority = 5, walltime = 1000\n" in out
    assert "jobs with a value of -5 or less are not planned" in out


def test_checkjob_says_why_a_formula_has_no_value(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert url
    main(["checkjob", "3"])
    out = capsys.readouterr().out
    assert "Its value by formula.expression is 0:" in out
    assert "which counts as 0: 1 / (job_priority - 9) has none" in out


def test_checkjob_names_the_threshold_for_which_a_job_waits(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert url
    assert main(["checkjob", "4"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "its value by formula.expression to be above the threshold -5 (it is -39.98" in out


def test_what_if_applies_the_threshold(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert url
    main(["showstart", "-l", "nodes=1:ppn=8,walltime=1000"])
    assert "threshold" not in capsys.readouterr().out


def test_preview_of_a_formula_names_owners_of_promises_at_risk(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert url
    file = tmp_path_factory.mktemp("policy") / "site.toml"
    file.write_text(
        "[clusters.main.site.formula]\nexpression = 'job_priority'\nthreshold = 7\n", encoding="utf-8"
    )
    main(["policy", "preview", str(file)])
    out = capsys.readouterr().out
    assert "2.srv" in out
    assert "ann" in out
    file.write_text("[clusters.main.site.formula]\nexpression = 'job_priority +'\n", encoding="utf-8")
    assert main(["policy", "preview", str(file)]) != 0
    assert "column 15" in capsys.readouterr().err
