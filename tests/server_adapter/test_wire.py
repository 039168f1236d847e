"""Requests and replies against short vectors taken from the protocol document; parsing of attributes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.frames import RequestFrame, UnknownRequestError, encode_request
from server_adapter.batch.replies import Location, Reply, Status, Text
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import (
    DisconnectRequest,
    JobRequest,
    ManageRequest,
    RunRequest,
    SelectRequest,
    SelectStatusRequest,
    SignalRequest,
    StatusRequest,
)
from server_adapter.dis import Attribute, Decoder, DisIncompleteError, DisSyntaxError, Operation
from server_adapter.openpbs.requests import SHAPES as OPENPBS_SHAPES
from server_adapter.torque import notation
from server_adapter.torque.codes import READ_ONLY
from server_adapter.torque.errors import BUSY, code_name, refusal_error
from server_adapter.torque.frames import decode_request
from server_adapter.torque.replies import decode_reply, encode_reply
from server_adapter.torque.requests import SHAPES, AuthenticateUserRequest, ResourceQueryRequest
from server_adapter.torque.status import TorqueStatusDecoder
from tests.server_adapter.inventory import parse_job, parse_queue, parse_server
from tests.server_adapter.node_status import parse_node

JOB = "0.localhost"
# Request bytes as the protocol document has them, section 5 (user root, version 2).
REQUESTS: list[tuple[BatchRequest, bytes]] = [
    (StatusRequest(code=RequestCode.STATUS_SERVER), b"+2+22+21+4root+0+0+0"),
    (StatusRequest(code=RequestCode.STATUS_NODE), b"+2+22+58+4root+0+0+0"),
    (StatusRequest(code=RequestCode.STATUS_JOB, name=JOB), b"+2+22+19+4root2+110.localhost+0+0"),
    (
        StatusRequest(
            code=RequestCode.STATUS_JOB,
            attributes=(
                Attribute("job_state", declared_size=11),
                Attribute("Resource_List", declared_size=15),
                Attribute("comment", declared_size=9),
            ),
        ),
        b"+2+22+19+4root+0+32+11+9job_state+0+0+02+152+13Resource_List+0+0+0+9+7comment+0+0+0+0",
    ),
    (
        SelectRequest(
            code=RequestCode.SELECT_STATUS,
            conditions=(Attribute("destination", "batch", operation=Operation.EQ),),
        ),
        b"+2+22+51+4root+12+182+11destination+0+5batch+4+0",
    ),
    (
        RunRequest(code=RequestCode.RUN_JOB, job=JOB, destination="node1:ppn=2"),
        b"+2+22+15+4root2+110.localhost2+11node1:ppn=2+0+0",
    ),
    (
        ManageRequest(
            code=RequestCode.HOLD_JOB,
            command=ManagerCommand.SET,
            object_type=ObjectType.JOB,
            name=JOB,
            attributes=(Attribute("Hold_Types", "s"),),
        ),
        b"+2+2+7+4root+2+22+110.localhost+12+132+10Hold_Types+0+1s+0+0",
    ),
    (
        ManageRequest(code=RequestCode.DELETE_JOB, command=1, object_type=2, name="1.localhost"),
        b"+2+2+6+4root+1+22+111.localhost+0+0",
    ),
    (
        ManageRequest(
            code=RequestCode.MANAGER,
            command=ManagerCommand.SET,
            object_type=ObjectType.NODE,
            name="node2",
            attributes=(Attribute("state", "offline", operation=Operation.INCR),),
        ),
        b"+2+2+9+4root+2+3+5node2+12+14+5state+0+7offline+2+0",
    ),
    (JobRequest(code=RequestCode.RERUN, job=JOB), b"+2+22+14+4root2+110.localhost+0"),
    (
        SignalRequest(code=RequestCode.SIGNAL_JOB, job=JOB, signal="SIGCONT"),
        b"+2+22+18+4root2+110.localhost+7SIGCONT+0",
    ),
    (ResourceQueryRequest(resources=("nodes=2:ppn=2",)), b"+2+22+24+4root+0+12+13nodes=2:ppn=2+0"),
    (AuthenticateUserRequest(port=46131), b"+2+22+49+4root5+46131+0"),
    (DisconnectRequest(), b"+2+22+59+4root"),
]


@pytest.mark.parametrize(("request_", "raw"), REQUESTS, ids=[request.code.name for request, _ in REQUESTS])
def test_a_request_has_the_documented_bytes(request_: BatchRequest, raw: bytes) -> None:
    assert encode_request(request_, user="root") == raw
    assert decode_request(Decoder(raw)) == RequestFrame(2, "root", request_)


def test_version_one_differs_in_a_single_digit() -> None:
    raw = encode_request(StatusRequest(code=RequestCode.STATUS_SERVER), user="root", version=1)
    assert raw == b"+2+12+21+4root+0+0+0"
    assert decode_request(Decoder(raw)).version == 1


def test_the_long_form_that_trqauthd_writes_is_read() -> None:
    frame = decode_request(Decoder(b"+2+22+491+4root5+57294+0"))
    assert frame == RequestFrame(2, "root", AuthenticateUserRequest(port=57294))


def test_an_extension_follows_the_body() -> None:
    raw = encode_request(StatusRequest(code=RequestCode.STATUS_JOB, extension="EXECQUEONLY"), user="root")
    assert raw == b"+2+22+19+4root+0+0+12+11EXECQUEONLY"
    assert decode_request(Decoder(raw)).request.extension == "EXECQUEONLY"


def test_an_unknown_request_number_is_distinguished_from_garbage() -> None:
    with pytest.raises(UnknownRequestError) as caught:
        decode_request(Decoder(b"+2+22+47+4root+0"))
    assert caught.value.number == 47
    with pytest.raises(DisSyntaxError):
        decode_request(Decoder(b"+3+22+21+4root+0+0+0"))


@given(st.sampled_from(REQUESTS), st.data())
def test_every_truncated_request_is_incomplete(pair: tuple[BatchRequest, bytes], data: st.DataObject) -> None:
    raw = pair[1]
    with pytest.raises(DisIncompleteError) as caught:
        decode_request(Decoder(raw[: data.draw(st.integers(0, len(raw) - 1))]))
    assert caught.value.needed <= len(raw)


def test_read_only_requests_change_nothing_and_have_shapes() -> None:
    assert all(
        SHAPES[code] in (StatusRequest, SelectRequest, SelectStatusRequest, DisconnectRequest)
        for code in READ_ONLY
    )
    assert set(SHAPES) | set(OPENPBS_SHAPES) == set(RequestCode)


REPLIES: list[tuple[Reply, bytes]] = [
    (Reply(), b"+2+2+0+0+1"),
    (Reply(version=1), b"+2+1+0+0+1"),
    (Reply(15021, 0, Text("Invalid credential")), b"+2+25+15021+0+72+18Invalid credential"),
    (
        Reply(15001, 0, Text("Unknown Job Id Error MSG=cannot locate job")),
        b"+2+25+15001+0+72+42Unknown Job Id Error MSG=cannot locate job",
    ),
    (Reply(payload=Location("localhost")), b"+2+2+0+0+8+9localhost"),
    (Reply(payload=Status(())), b"+2+2+0+0+6+0"),
]


@pytest.mark.parametrize(("reply", "raw"), REPLIES)
def test_a_reply_has_the_documented_bytes(reply: Reply, raw: bytes) -> None:
    assert encode_reply(reply) == raw
    assert decode_reply(Decoder(raw)) == reply


def test_a_refusal_in_place_of_a_status_is_returned_as_reply() -> None:
    decoder = TorqueStatusDecoder()
    assert decoder.feed(b"+2+25+15021+0+72+18Invalid") == []
    assert decoder.rest == b""
    assert decoder.feed(b" credential") == []
    assert decoder.done
    assert decoder.reply is not None
    assert decoder.reply.code == 15021


def test_bytes_after_a_status_reply_are_kept() -> None:
    decoder = TorqueStatusDecoder()
    decoder.feed(b"+2+2+0+0+6+0+2+2")
    assert decoder.done
    assert decoder.rest == b"+2+2"


def test_a_refusal_names_the_code_and_the_refused_request() -> None:
    error = refusal_error(15046, "1 requested, 0 available", "RUN_JOB 7.srv")
    assert str(error) == "pbs_server refused to RUN_JOB 7.srv: 15046 RESCUNAV (1 requested, 0 available)"
    assert error.code in BUSY
    assert code_name(15999) == "code 15999"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100", 100), ("01:40", 100), ("00:01:40", 100), ("100:00:00", 360_000), ("2:00:00:01", 172_801)],
)
def test_durations_are_seconds(text: str, seconds: int) -> None:
    assert notation.seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "kib"),
    [("512mb", 524_288), ("6600kb", 6_600), ("1024", 1), ("1025b", 2), ("2GB", 2_097_152), ("1kw", 8)],
)
def test_sizes_are_kib_rounded_up(text: str, kib: int) -> None:
    assert notation.kib(text) == kib


@pytest.mark.parametrize("text", ["", "x", "1:2:3:4:5", "-5", "1:xx", "٣"])
def test_a_malformed_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        notation.seconds(text)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1/0+node1/1", (("node1", 2),)),  # 4.2
        ("localhost/1+localhost/0", (("localhost", 2),)),  # 2.5
        ("n1/0-3+n2/0-3", (("n1", 4), ("n2", 4))),  # 6.1
        ("n2/0,2-3+n1/7", (("n2", 3), ("n1", 1))),
    ],
)
def test_host_lists_of_all_versions_are_parsed_to_nodes_and_slots_in_order(
    text: str, hosts: tuple[tuple[str, int], ...]
) -> None:
    assert notation.exec_host(text) == hosts


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("0-1/0.localhost,2/5.localhost", {"0.localhost": 2, "5.localhost": 1}),  # 6.1
        ("0/0.localhost,1/0.localhost", {"0.localhost": 2}),  # 4.2
        ("0/5.localhost, 1/5.localhost", {"5.localhost": 2}),  # 2.5
        ("0,2-3/5.localhost", {"5.localhost": 3}),
        ("", {}),
    ],
)
def test_node_jobs_of_all_versions_are_parsed_to_slots_by_job(text: str, jobs: dict[str, int]) -> None:
    assert notation.node_jobs(text) == jobs


def test_a_moms_report_is_read_in_any_order_and_with_commas_inside() -> None:
    report = notation.node_status("opsys=linux,uname=Linux a, b,varattr=,jobs=0.srv 1.srv,ncpus=2")
    assert report == {
        "opsys": "linux",
        "uname": "Linux a, b",
        "varattr": "",
        "jobs": "0.srv 1.srv",
        "ncpus": "2",
    }


def test_a_job_preserves_unknown_attributes_and_names_unreadable_attributes() -> None:
    job = parse_job(
        "7.srv",
        {
            "Job_Owner": "alice@host",
            "job_state": "R",
            "exec_host": "n1/0-3",
            "Hold_Types": "n",
            "Resource_List.walltime": "00:20:00",
            "start_count": "many",
            "weather": "fine",
        },
    )
    assert job.user == "alice"
    assert job.hosts == (("n1", 4),)
    assert job.holds == ""
    assert job.walltime == 1200
    assert job.start_count == 0
    assert job.unreadable == ("start_count",)
    assert job.other == {"weather": "fine"}


def test_a_node_that_never_reported_has_no_memory() -> None:
    node = parse_node("n1", {"state": "down,offline", "np": "4", "properties": "odd,big"})
    assert node.down
    assert node.offline
    assert node.memory is None
    assert node.properties == ("odd", "big")


def test_limits_and_defaults_of_queue_and_server_are_parsed() -> None:
    queue = parse_queue(
        "batch",
        {
            "queue_type": "Execution",
            "started": "True",
            "enabled": "False",
            "max_user_run": "3",
            "resources_default.walltime": "01:00:00",
        },
    )
    assert (queue.started, queue.enabled, queue.max_user_running) == (True, False, 3)
    assert queue.defaults == {"walltime": "01:00:00"}
    server = parse_server(
        "srv", {"scheduling": "True", "state_count": "Queued:3 Held:0 ", "pbs_version": "6.1"}
    )
    assert server.scheduling
    assert server.counts == {"Queued": 3, "Held": 0}


@given(
    st.dictionaries(st.sampled_from(["exec_host", "jobs", "status", "state", "np", "Priority"]), st.text())
)
def test_no_value_of_a_known_attribute_hides_its_object(found: dict[str, str]) -> None:
    assert parse_job("7.srv", found).id == "7.srv"
    assert parse_node("n1", found).name == "n1"
    assert parse_queue("batch", found).name == "batch"
    assert parse_server("srv", found).name == "srv"
