"""Extensions of TORQUE jobs as requested resources."""

import pytest

from schedd.dialect.deadline import logged_deadline
from schedd.wire.job_extensions import extension_resources
from server_adapter.servers.torque.facts import job_facts


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        (
            "NACCESSPOLICY:SINGLEJOB;FLAGS:RESTARTABLE",
            {"naccesspolicy": "SINGLEJOB", "x.flags": "RESTARTABLE"},
        ),
        ("qos=high; Partition = a:b", {"x.qos": "high", "x.partition": "a:b"}),
        ("GRES:matlab=2", {"x.gres": "matlab=2"}),
        ("flag;;=", {"x.flag": ""}),
        ("", {}),
    ],
)
def test_extensions_are_resources_with_a_prefix(text: str, resources: dict[str, str]) -> None:
    assert extension_resources(text) == resources


def test_a_deadline_with_colons_is_read_after_an_equals_sign_from_jobs_and_logs() -> None:
    values = {"x": "DEADLINE=+06:00:00", "job_state": "Q"}
    assert job_facts("1.server", values).resources["x.deadline"] == "+06:00:00"
    assert logged_deadline(values, 1_000) == 1_000 + 6 * 3_600
