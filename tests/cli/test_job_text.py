"""Grammar of texts about jobs."""

from typing import Any, cast

import pytest

from schedd.cli.user.job_text import describe_deadline, describe_link
from schedd.client.answers import ChainLink, JobView, WhatIfVariantResult
from schedd.client.json_object import JsonObject

_REFUSED = {
    "deadline_state": "wished",
    "deadline_required": None,
    "deadline_probability": None,
    "earliest_deadline": 1_796_059_906,
}


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([], "a job of another user holds n1"),
        (["1"], "job 1 holds n1"),
        (["1", "2"], "jobs 1, 2 hold n1"),
    ],
)
def test_verbs_agree_with_the_number_for_jobs(jobs: list[str], said: str) -> None:
    held = [JsonObject(id=job) for job in jobs]
    link: Any = JsonObject(kind="running", nodes=["n1"], jobs=held, count=1)
    assert describe_link(cast("ChainLink", link)) == said


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("x.deadline", "(qalter -W x=deadline:1796059906)"),
        ("deadline", "(qalter -l deadline=1796059906)"),
    ],
)
def test_an_offered_deadline_is_a_command_of_the_jobs_server(name: str, command: str) -> None:
    """TORQUE refuses `-l deadline=` where the deadline is an extension: `Unknown resource type`."""
    job = cast("JobView", JsonObject(_REFUSED | {"resources": {name: "+01:00:00"}}))
    assert describe_deadline(job, 0).endswith(command)


def test_an_offered_deadline_names_the_other_extensions_that_qalter_replaces() -> None:
    resources = {"x.deadline": "+01:00:00", "x.advres": "review"}
    job = cast("JobView", JsonObject(_REFUSED | {"resources": resources}))
    assert "with the other values of -W x, which qalter replaces together" in describe_deadline(job, 0)


def test_the_deadline_offered_by_a_what_if_is_a_part_of_the_request() -> None:
    asked = cast("WhatIfVariantResult", JsonObject(_REFUSED))
    assert describe_deadline(asked, 0).endswith("(deadline=1796059906)")
