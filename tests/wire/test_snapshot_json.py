"""The incremental JSON reader and writer of snapshots agree with the standard ones."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import TypeAdapter, ValidationError

from schedd.wire import JobFacts, NodeFacts, ShareFacts, Snapshot
from schedd.wire.snapshot_json import JsonReader, dump_snapshot, read_jobs, read_snapshot

VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
)
LAYOUTS = some.sampled_from([None, 0, 2, "\t"])
SNAPSHOT = TypeAdapter(Snapshot)


def walk(reader: JsonReader) -> Any:
    """Return the value, read element by element."""
    match reader.next():
        case "{":
            return {name: walk(reader) for name in reader.members()}
        case "[":
            return [walk(reader) for _ in reader.elements()]
        case _:
            return reader.value()


def read_all(text: str) -> Any:
    reader = JsonReader(text)
    value = walk(reader)
    reader.end()
    return value


@given(VALUES, LAYOUTS)
def test_incremental_reader_agrees_with_json(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    assert read_all(text) == value
    assert read_all(f" \n{text}\t") == value


@given(VALUES, LAYOUTS, some.data())
def test_incremental_reader_refuses_text_that_json_refuses(
    value: Any, indent: Any, data: some.DataObject
) -> None:
    text = json.dumps(value, indent=indent)
    at = data.draw(some.integers(0, len(text)))
    other = data.draw(some.sampled_from(["", ",", ":", '"', "[", "]", "{", "}", "0", " "]))
    changed = text[:at] + other + text[at + data.draw(some.integers(0, 1)) :]
    try:
        expected = json.loads(changed)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011
            read_all(changed)
    else:
        assert read_all(changed) == expected


@pytest.mark.parametrize("text", ["", "{", '{"a"', '{"a":', '{"a":1,}', "[1 2]", "[1,]", "{1:2}", "1 1"])
def test_truncated_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_all(text)


def make_jobs(jobs: int) -> Iterator[JobFacts]:
    for number in range(jobs):
        yield JobFacts(
            id=f"{number}.s",
            owner='"jobs":[]',
            queue="q",
            submitted=number,
            state="R",
            resources={"nodes": "1"},
            shares=(ShareFacts("n1", 2, 1024),),
        )


@pytest.mark.parametrize("jobs", [0, 1, 99, 100, 101, 250])
def test_incremental_snapshot_equals_the_complete_snapshot(jobs: int) -> None:
    snapshot = Snapshot(
        id='"jobs":[]',
        time=5,
        jobs=tuple(make_jobs(jobs)),
        nodes=(NodeFacts(name="n1", cpus=4),),
        server_age=7,
    )
    text = b"".join(dump_snapshot(snapshot))
    assert text == SNAPSHOT.dump_json(snapshot)
    assert read_snapshot(text.decode()) == snapshot


def test_snapshot_from_an_older_version_gets_defaults() -> None:
    assert read_snapshot('{"id":"s","time":1,"jobs":[],"nodes":[]}').complete


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"s","time":1,"jobs":[{"id":"1"}],"nodes":[]}',
        '{"id":"s","time":1,"jobs":{},"nodes":[]}',
        '{"id":"s","jobs":[],"nodes":[]}',
        '{"id":"s","time":1,"jobs":[],"nodes":[]} 7',
    ],
)
def test_malformed_snapshot_is_refused(text: str) -> None:
    with pytest.raises((ValueError, ValidationError)):
        read_snapshot(text)


def test_jobs_are_read_on_demand() -> None:
    jobs = ",".join(TypeAdapter(JobFacts).dump_json(job).decode() for job in make_jobs(150))
    found = read_jobs(JsonReader(f"[{jobs}, torn"))
    assert next(found).id == "0.s"
    with pytest.raises(ValueError):  # noqa: PT011
        list(found)
