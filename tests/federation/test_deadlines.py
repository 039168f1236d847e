"""Where would it end by its deadline? A federation asks real daemons."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedd.api.app import create_app
from schedd.cli.main import main
from schedd.engine import EngineSettings
from schedd.federation.routing.cluster_status import TransferStatus
from schedd.federation.settings import FederationSettings
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.service.clusters import Clusters
from tests.api.served_app import serving
from tests.federation.federation_harness import HERE, JOB, FederationHarness
from tests.service.planner_harness import StillClock, T, job, node
from tests.waits import WAIT_S

ASKED = "nodes=1:ppn=4,walltime=1000"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[FederationHarness]:
    """Over two clusters of a real daemon: the north has room in 1,000 s, the south in 2,000."""
    clusters = Clusters({"north": EngineSettings(), "south": EngineSettings()}, StillClock())
    clusters.start(warm=False)
    for name, walltime in (("north", "1000"), ("south", "2000")):
        clusters[name].submit([node(f"{name}1", 4), job("1.s", nodes="1:ppn=4", walltime=walltime)]).result(
            WAIT_S
        )
    ours = Tokens([(Bearer("ours", "federation"), hashlib.sha256(b"x").digest())])
    with serving(create_app(clusters, ours), clusters) as url:
        made = FederationHarness(tmp_path)
        made.log.close()
        place = {"url": url, "token_file": str(tmp_path), "realms": ["org"], "timeout": 5.0}
        named = {name: {**place, "cluster": name} for name in ("north", "south")}
        made.begin(FederationSettings.model_validate({"clusters": named}))
        yield made
        made.log.close()
    clusters.stop()


def query_deadline(harness: FederationHarness, deadline: int | None) -> dict[str, Any]:
    body = {"request": ASKED, "deadline": deadline}
    answer = harness.client("ann@org").post("/v1/federation/what-if", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize(
    ("deadline", "fits", "late", "by_cluster"),
    [
        (T + 3_000, True, 0, [0, 0]),
        (T + 2_500, True, 0, [0, 500]),
        (T + 1_700, False, 300, [300, 1_300]),
        (None, None, None, [None, None]),
    ],
)
def test_query_shows_met_deadlines_and_lateness(
    harness: FederationHarness,
    deadline: int | None,
    fits: bool | None,
    late: int | None,
    by_cluster: list[int | None],
) -> None:
    found = query_deadline(harness, deadline)
    assert (found["deadline"], found["fits"], found["late_by"]) == (deadline, fits, late)
    assert [row["cluster"] for row in found["clusters"]] == ["north", "south"]
    assert [row["late_by"] for row in found["clusters"]] == by_cluster


def test_submit_command_sends_the_deadline(
    harness: FederationHarness,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nsleep 1\n")
    monkeypatch.setenv("SCHEDD_TOKEN", "token-of-ann@org")
    monkeypatch.setattr("schedd.federation.commands.submit._CHOICE_WAIT_S", 0.1)
    with serving(harness.app, ()) as url:
        words = ("submit", "--url", url, "-l", ASKED, str(script))
        assert main([*words, "--where", "--by", "2023-11-14T22:00"]) == 0
        told = capsys.readouterr().out
        assert main([*words, "--by", "2100-01-01T00:00"]) == 0
        assert main([*words, "--by", "one day"]) == 2
    assert " ".join(told.splitlines()[0].split()) == (
        "CLUSTER PLANNED END DEADLINE LIKELY 90 % BY AT THE LATEST"
    )
    assert re.search(r" late +plan \d\d:\d\d ", told.splitlines()[1]), told
    assert "no time; write" in capsys.readouterr().err
    (deadline,) = (one.deadline for one in harness.federation.jobs.by_id.values())
    assert deadline is not None
    assert deadline > 4_000_000_000


def test_invalid_deadline_is_refused(harness: FederationHarness) -> None:
    for path, body in (("/v1/federation/what-if", {"request": ASKED}), (HERE, JOB)):
        answer = harness.client("ann@org").post(path, json={**body, "deadline": -1})
        assert answer.status_code == 422, answer.text


def test_job_shows_its_cluster_s_answer_about_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = FederationHarness(tmp_path)
    ann, deadline = harness.client("ann@org"), harness.now + 500
    harness.report("north", 10)
    harness.report("south", 10)
    name = ann.post(HERE, json={**JOB, "deadline": deadline}).json()["id"]
    harness.report("north", 10)
    harness.report("south", 20)

    def judge(phase: str, state: Any = "", earliest: int | None = None) -> tuple[str, str]:
        """The cluster reports the job: its state in the answer of the federation, and in `checkjob`."""
        seen = TransferStatus(
            phase, f"{name}.north", "planned", deadline_state=state, earliest_deadline=earliest
        )
        harness.report("north", None, **{f"fed_{name}_1": seen})
        row = ann.get(f"{HERE}/{name}").json()
        with serving(harness.app, ()) as url:
            main(["checkjob", "--federation", "--url", url, name])
        (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("deadline ")]
        return row["deadline_state"], line.partition(", ")[2]

    monkeypatch.setenv("SCHEDD_TOKEN", "token-of-ann@org")
    assert judge("held") == ("wished", "wished")
    assert judge("released", "accepted") == ("accepted", "accepted")
    assert judge("released", "at_risk") == ("at_risk", "at risk")
    refused, words = judge("released", "wished", deadline + 60)
    assert refused == "wished"
    assert words.startswith("refused; ")
    ended = TransferStatus("released", f"{name}.north", "", True, end="ended", exit_status=0)
    harness.report("north", None, **{f"fed_{name}_1": ended})
    row = ann.get(f"{HERE}/{name}").json()
    assert (row["deadline"], row["deadline_state"], row["earliest_deadline"]) == (deadline, "kept", None)
    harness.log.close()
