"""Every recorded exchange is decoded and encoded again to the very bytes that travelled."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from server_adapter.batch.codes import ObjectType, RequestCode
from server_adapter.batch.frames import RequestFrame, encode_request
from server_adapter.batch.replies import Reply, Status
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.dis import Decoder, encode_string
from server_adapter.torque.frames import decode_request
from server_adapter.torque.replies import decode_reply, encode_reply
from server_adapter.torque.status import TorqueStatusDecoder
from tests.server_adapter.inventory import parse_job, parse_queue, parse_server
from tests.server_adapter.node_status import parse_node

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "protocols" / "captures" / "torque"
FILES = sorted(CAPTURES.glob("*.jsonl"))
NAMES = {
    "StatusSvr": RequestCode.STATUS_SERVER,
    "StatusQue": RequestCode.STATUS_QUEUE,
    "AsyModifyJob": RequestCode.ASYNC_MODIFY_JOB,
    "AsyrunJob": RequestCode.ASYNC_RUN_JOB,
    "AuthenUser": RequestCode.AUTHENTICATE_USER,
    "SelStat": RequestCode.SELECT_STATUS,
    "Rescq": RequestCode.RESOURCE_QUERY,
}

pytestmark = pytest.mark.skipif(not FILES, reason=f"no captures of real servers under {CAPTURES}")
each_file = pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])


def records(path: Path) -> Iterator[dict[str, object]]:
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)


def requests(path: Path) -> Iterator[tuple[str | None, bytes]]:
    for record in records(path):
        if "messages" in record:
            for message in record["messages"]:  # type: ignore[attr-defined]
                if message["dir"] == "C->S":
                    yield None, message["body"].encode("latin-1")
        elif record["request_complete"]:
            yield str(record["request"]), str(record["request_body"]).encode("latin-1")


def replies(path: Path, *, whole: bool = True) -> Iterator[bytes]:
    for record in records(path):
        if "messages" in record:
            for message in record["messages"]:  # type: ignore[attr-defined]
                if message["dir"] == "S->C":
                    yield message["body"].encode("latin-1")
        elif record["reply_complete"] or not whole:
            yield str(record["reply_body"]).encode("latin-1")


def shortest(raw: bytes, frame: RequestFrame) -> bytes:
    """trqauthd writes the length of the user's name in a longer legal form (`1+5alice`)."""
    name = encode_string(frame.user)
    return raw.replace(b"1" + name, name, 1)


def read_replies(raw: bytes) -> list[Reply]:
    decoder, found = Decoder(raw), []
    while decoder.position < len(raw):
        found.append(decode_reply(decoder))
    return found


@each_file
def test_every_request_is_encoded_again_byte_for_byte(path: Path) -> None:
    for name, raw in requests(path):
        decoder = Decoder(raw)
        frame = decode_request(decoder)
        assert decoder.position == len(raw)
        again = encode_request(frame.request, user=frame.user, version=frame.version)
        long_form = frame.request.code in (RequestCode.AUTHENTICATE_USER, RequestCode.DISCONNECT)
        assert again == raw or (long_form and again == shortest(raw, frame))
        if name is not None:
            expected = NAMES.get(name) or RequestCode[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()]
            assert frame.request.code is expected


@each_file
def test_every_reply_is_encoded_again_byte_for_byte(path: Path) -> None:
    for raw in replies(path):
        assert b"".join(map(encode_reply, read_replies(raw))) == raw


@each_file
@pytest.mark.parametrize("size", [1, 7, 64, 65536])
def test_chunked_status_decoding_equals_strict_decoding(path: Path, size: int) -> None:
    for raw in replies(path):
        first = read_replies(raw)[0]
        decoder = TorqueStatusDecoder()
        found: list[DescribedObject] = []
        for start in range(0, len(raw), size):
            found += decoder.feed(raw[start : start + size])
        assert decoder.done
        if isinstance(first.payload, Status):
            assert [(item.object_type, item.name, item.values) for item in found] == [
                (item.object_type, item.name, {entry.key: entry.value for entry in item.attributes})
                for item in first.payload.objects
            ]
        else:
            assert decoder.reply == first


@each_file
def test_every_object_of_every_recorded_reply_is_parsed_completely(path: Path) -> None:
    for raw in replies(path, whole=False):
        for item in TorqueStatusDecoder().feed(raw):
            match item.object_type:
                case ObjectType.JOB:
                    job = parse_job(item.name, item.values)
                    assert not job.unreadable
                    assert job.state in ("", *"TQHWREC")
                case ObjectType.NODE:
                    node = parse_node(item.name, item.values)
                    assert not node.unreadable
                    assert set(node.states) <= {"free", "job-exclusive", "offline", "down"}
                    assert node.memory == 24_684_100
                case ObjectType.QUEUE:
                    queue = parse_queue(item.name, item.values)
                    assert not queue.unreadable
                    assert queue.execution
                    assert queue.started
                case ObjectType.SERVER:
                    server = parse_server(item.name, item.values)
                    assert not server.unreadable
                    assert server.name == "localhost"
