"""Grammar of texts about jobs."""

from typing import Any, cast

import pytest

from schedd.cli.user.job_text import describe_link
from schedd.client.answers import ChainLink
from schedd.client.json_object import JsonObject


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
