"""The adapter's verbs have the bytes that the protocol document gives."""

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.frames import encode_request
from server_adapter.batch.request_layout import BatchRequest
from tests.server_adapter import admin_requests

JOB = "0.localhost"


@pytest.mark.parametrize(
    ("request_", "raw"),
    [
        (
            admin_requests.run(JOB, [("node1", 2)]),
            b"+2+22+15+4root2+110.localhost2+11node1:ppn=2+0+0",
        ),
        (
            admin_requests.alter(
                JOB, {"comment": "planned 2026-12-01 10:00:00 on node1", "start_time": "1795258947"}
            ),
            (
                b"+2+22+11+4root+2+22+110.localhost+22+45+7comment+02+36planned 2026-12-01 10:00:00 on node1"
                b"+02+222+10start_time+02+101795258947+0+0"
            ),
        ),
        (
            admin_requests.alter(JOB, {"comment": None}),
            b"+2+22+11+4root+2+22+110.localhost+1+9+7comment+0+0+1+0",
        ),
        (
            admin_requests.alter(JOB, {"Resource_List.walltime": "00:05:00"}),
            b"+2+22+11+4root+2+22+110.localhost+12+322+13Resource_List+1+8walltime+800:05:00+0+0",
        ),
        (admin_requests.hold(JOB, "s"), b"+2+2+7+4root+2+22+110.localhost+12+132+10Hold_Types+0+1s+0+0"),
        (admin_requests.release(JOB, "s"), b"+2+22+13+4root+2+22+110.localhost+12+132+10Hold_Types+0+1s+0+0"),
        (admin_requests.delete("1.localhost"), b"+2+2+6+4root+1+22+111.localhost+0+0"),
        (admin_requests.requeue(JOB), b"+2+22+14+4root2+110.localhost+0"),
        (admin_requests.signal(JOB, "SIGCONT"), b"+2+22+18+4root2+110.localhost+7SIGCONT+0"),
        (
            admin_requests.set_node_offline("node2", True),
            b"+2+2+9+4root+2+3+5node2+12+14+5state+0+7offline+2+0",
        ),
        (
            admin_requests.set_node_note("node2", "plan: J at 12:00"),
            b"+2+2+9+4root+2+3+5node2+12+22+4note+02+16plan: J at 12:00+0+0",
        ),
        (
            admin_requests.set_server({"scheduler_iteration": "300"}),
            b"+2+2+9+4root+2+0+0+12+242+19scheduler_iteration+0+3300+0+0",
        ),
        (
            admin_requests.set_queue("batch", {"Priority": "3"}),
            b"+2+2+9+4root+2+1+5batch+12+11+8Priority+0+13+0+0",
        ),
        (
            admin_requests.status_request(
                RequestCode.STATUS_SERVER, attributes=["scheduling", "scheduler_iteration"]
            ),
            b"+2+22+21+4root+0+22+212+19scheduler_iteration+0+0+02+122+10scheduling+0+0+0+0",
        ),
    ],
)
def test_a_verb_has_the_documented_bytes(request_: BatchRequest, raw: bytes) -> None:
    assert encode_request(request_, user="root") == raw


def test_a_destination_names_each_host_once_with_its_slots() -> None:
    assert admin_requests.destination([("node1", 4), ("node2", 1)]) == "node1:ppn=4+node2:ppn=1"
    for wrong in ([], [("node1", 0)], [("node1", 1), ("node1", 1)]):
        with pytest.raises(ValueError, match="not a destination"):
            admin_requests.destination(wrong)
