"""Every packet recorded of a real OpenPBS server is read and written again, to the very bytes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from server_adapter.batch.codes import ObjectType, RequestCode
from server_adapter.batch.frames import encode_request
from server_adapter.batch.replies import Status
from server_adapter.batch.requests import ManageRequest, RunRequest
from server_adapter.openpbs.codes import OpenPBSCommand
from server_adapter.openpbs.frames import decode_request
from server_adapter.openpbs.packets import HEADER, PacketSplitter, encode_packet
from server_adapter.openpbs.registration import CycleCommand, decode_command
from server_adapter.openpbs.replies import decode_reply, encode_reply
from server_adapter.openpbs.requests import DeferredReplyRequest
from server_adapter.openpbs.status import OpenPBSStatusDecoder

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "protocols" / "captures" / "openpbs"
FILES = sorted(CAPTURES.glob("*.jsonl"))
pytestmark = pytest.mark.skipif(not FILES, reason=f"no captures of real servers under {CAPTURES}")
each_file = pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])


def packets(path: Path) -> Iterator[tuple[str, str, bytes, bytes]]:
    """Connection, direction, body and packet of the packets that were recorded completely."""
    with path.open() as lines:
        for line in lines:
            record = json.loads(line)
            if "body" in record and record.get("complete", True):
                raw = bytes.fromhex(record["hex"])
                yield record["conn"], record["dir"], record["body"].encode("latin-1"), raw


def is_message(body: bytes) -> bool:
    """Whether it is a request or a reply, not a command or the end of a cycle."""
    return body.startswith(b"+2+2")


@each_file
def test_packets_are_split_at_any_cut_and_built_again(path: Path) -> None:
    for _, _, body, raw in packets(path):
        for cut in {1, HEADER - 1, HEADER, len(raw) // 2, len(raw) - 1}:
            splitter = PacketSplitter()
            found = splitter.feed(raw[:cut]) + splitter.feed(raw[cut:] + raw)
            assert [packet.body for packet in found] == [body, body]
            assert splitter.pending == 0
        rebuilt = encode_packet(body)
        assert rebuilt[:6] == raw[:6], "the kind byte of a server's packets means nothing"
        assert rebuilt[7:] == raw[7:]


@each_file
def test_each_request_is_read_and_written_again(path: Path) -> None:
    seen = 0
    for _, direction, body, _ in packets(path):
        if direction != "C->S" or not is_message(body):
            continue
        frame = decode_request(body)
        assert encode_request(frame.request, user=frame.user) == body
        seen += 1
    assert seen > 10


@each_file
def test_each_reply_is_read_and_written_again(path: Path) -> None:
    kinds = set()
    for _, direction, body, _ in packets(path):
        if direction != "S->C" or not is_message(body):
            continue
        reply = decode_reply(body)
        assert encode_reply(reply) == body
        if isinstance(reply.payload, Status):
            decoder = OpenPBSStatusDecoder()
            found = decoder.feed(body)
            assert decoder.done is not reply.more
            assert [(item.object_type, item.name) for item in found] == [
                (item.object_type, item.name) for item in reply.payload.objects
            ]
            for item, wanted in zip(found, reply.payload.objects, strict=True):
                assert item.values == {entry.key: entry.value for entry in wanted.attributes}
            kinds |= {ObjectType(item.object_type) for item in found}
    assert kinds & {ObjectType.SERVER, ObjectType.SCHEDULER}


@each_file
def test_recorded_commands_are_known(path: Path) -> None:
    commands = [
        decode_command(body)
        for _, direction, body, _ in packets(path)
        if direction == "S->C" and not is_message(body)
    ]
    assert all(OpenPBSCommand(command.code) for command in commands)
    if path.stem == "arrays-resv-events":
        assert CycleCommand(OpenPBSCommand.RUN_JOB, "5014.vm") in commands


def test_recorded_requests_are_decoded_as_in_the_protocol_document() -> None:
    found = [
        decode_request(body).request
        for path in FILES
        for _, direction, body, _ in packets(path)
        if direction == "C->S" and is_message(body)
    ]
    runs = [request for request in found if isinstance(request, RunRequest)]
    assert RunRequest(code=RequestCode.ASYNC_RUN_JOB_ACK, job="0.vm", destination="(n08:ncpus=2)") in runs
    [deferred] = [request for request in found if isinstance(request, DeferredReplyRequest)]
    assert (deferred.command, deferred.job, deferred.result, deferred.text) == (
        OpenPBSCommand.RUN_JOB,
        "5014.vm",
        15057,
        "python says no",
    )
    estimates = [
        request
        for request in found
        if isinstance(request, ManageRequest)
        and any(entry.name == "estimated" for entry in request.attributes)
    ]
    assert {entry.key for request in estimates for entry in request.attributes} >= {
        "estimated.start_time",
        "estimated.exec_vnode",
        "comment",
    }
