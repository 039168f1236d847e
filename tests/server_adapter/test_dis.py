"""DIS: short and long forms, round trips, and what happens to garbage."""

import contextlib
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import server_adapter
from server_adapter.dis import (
    DEFAULT_LIMITS,
    Attribute,
    AttributeScanner,
    Decoder,
    DisError,
    DisIncompleteError,
    DisLimitError,
    DisSyntaxError,
    Limits,
    Operation,
    decode_text,
    encode_attributes,
    encode_integer,
    encode_string,
    encode_text,
    is_plain,
    scan,
    shared_scanner,
)

# Every pair is taken from the protocol document, section 4.
INTEGERS = [
    (0, b"+0"),
    (7, b"+7"),
    (12, b"2+12"),
    (15001, b"5+15001"),
    (-1, b"-1"),
    (1795258947, b"210+1795258947"),
]
STRINGS = [("root", b"+4root"), ("", b"+0"), ("0.localhost", b"2+110.localhost"), ("batch", b"+5batch")]

tricky = st.sampled_from(
    [b"\\", b"x", b"ff", b"\xff", b"\\xff", b"\\x00", b"\0", b"\x80", b"\xc3", b"\xa9", b"a"]
)
any_bytes = st.binary(max_size=40) | st.lists(tricky, max_size=12).map(b"".join)
words = st.text(st.characters(codec="utf-8"), max_size=40).map(
    lambda text: decode_text(text.encode())
) | any_bytes.map(decode_text)
names = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=120)
attributes = st.builds(
    Attribute,
    name=names,
    value=words,
    resource=st.none() | names,
    operation=st.sampled_from([o for o in Operation if o < 10]),
    declared_size=st.none() | st.integers(0, 10**6),
)


@pytest.mark.parametrize(("value", "raw"), INTEGERS)
def test_integers_are_written_and_read_as_documented(value: int, raw: bytes) -> None:
    assert encode_integer(value) == raw
    assert Decoder(raw).integer() == value


@pytest.mark.parametrize(("value", "raw"), STRINGS)
def test_strings_are_written_and_read_as_documented(value: str, raw: bytes) -> None:
    assert encode_string(value) == raw
    assert Decoder(raw).string() == value


@pytest.mark.parametrize(("raw", "value"), [(b"1+4", 4), (b"1210+1795258947", 1795258947), (b"12+12", 12)])
def test_longer_legal_forms_of_a_number_are_decoded(raw: bytes, value: int) -> None:
    decoder = Decoder(raw)
    assert decoder.integer() == value
    assert decoder.position == len(raw)


@pytest.mark.parametrize(
    ("raw", "error", "offset"),
    [
        (b"", DisIncompleteError, 0),
        (b"+", DisIncompleteError, 0),
        (b"2+1", DisIncompleteError, 0),
        (b"21", DisIncompleteError, 0),
        (b"x", DisSyntaxError, 0),
        (b"2x", DisSyntaxError, 1),
        (b"+x", DisSyntaxError, 1),
        (b"0+1", DisSyntaxError, 0),
        (b"1111111111+1", DisSyntaxError, 0),
        (b"299+1", DisLimitError, 1),
    ],
)
def test_a_malformed_number_is_reported_with_its_position(
    raw: bytes, error: type[DisError], offset: int
) -> None:
    with pytest.raises(error) as caught:
        Decoder(raw).integer()
    assert caught.value.offset == offset
    assert f"at byte {offset}" in str(caught.value)


def test_a_string_longer_than_the_limit_is_refused_before_it_arrives() -> None:
    with pytest.raises(DisLimitError):
        Decoder(b"5+99999", limits=Limits(string_bytes=1000)).string()


def test_a_list_longer_than_the_limit_is_refused_before_it_arrives() -> None:
    with pytest.raises(DisLimitError):
        Decoder(b"9+999999999").attributes()


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(DisSyntaxError):
        Decoder(b"-4root").string()


def test_a_truncated_string_reports_the_number_of_missing_bytes() -> None:
    with pytest.raises(DisIncompleteError) as caught:
        Decoder(b"2+110.local").string()
    assert caught.value.needed == 15


def test_lengths_count_bytes_not_characters() -> None:
    assert encode_string("é") == b"+2\xc3\xa9"
    assert Decoder(b"+2\xc3\xa9").string() == "é"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"job\xff", r"job\xff"),
        (rb"job\xff", r"job\\xff"),
        (b"\\\xff", r"\\\xff"),
        (b"a\0b", r"a\x00b"),
        (rb"DOMAIN\alice", r"DOMAIN\alice"),
        (rb"DOMAIN\xavier", r"DOMAIN\xavier"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
        ("Müller".encode(), "Müller"),
        ("Müller".encode("latin-1"), r"M\xfcller"),
    ],
)
def test_bytes_that_are_not_utf8_are_escaped_and_restored_when_sent(raw: bytes, text: str) -> None:
    received = encode_string(raw)
    assert Decoder(received).string() == text
    assert encode_string(text) == received


@given(any_bytes, any_bytes)
def test_any_bytes_survive_the_round_trip_through_text(raw: bytes, other: bytes) -> None:
    text = decode_text(raw)
    assert "\0" not in text
    text.encode()  # no surrogates
    assert encode_text(text) == raw
    assert (text == decode_text(other)) == (raw == other)


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_text_can_be_sent(text: str) -> None:
    assert Decoder(encode_string(text)).string() is not None


def test_a_string_of_backslashes_is_decoded_in_linear_time() -> None:
    raw = b"\\" * 200_000 + b"\xff"
    began = time.process_time()
    assert encode_text(decode_text(raw)) == raw
    assert time.process_time() - began < 5


@given(st.integers(-(10**19), 10**19))
def test_every_number_survives_the_round_trip(value: int) -> None:
    assert Decoder(encode_integer(value)).integer() == value


@given(words)
def test_every_string_survives_the_round_trip(value: str) -> None:
    assert Decoder(encode_string(value)).string() == value


@given(st.lists(attributes, max_size=20))
def test_every_attribute_list_survives_the_round_trip_with_declared_sizes(entries: list[Attribute]) -> None:
    raw = encode_attributes(entries)
    decoder = Decoder(raw)
    decoded = decoder.attributes()
    assert list(decoded) == entries
    assert encode_attributes(decoded) == raw
    assert decoder.position == len(raw)


@given(st.lists(st.lists(attributes, max_size=12), max_size=4), st.booleans())
def test_scanner_and_decoder_agree(lists: list[list[Attribute]], repeat: bool) -> None:
    if repeat:
        lists *= 2
    raw = b"".join(encode_attributes(entries) for entries in lists)
    scanner, position = AttributeScanner(), 0
    for entries in lists:
        values, position = scanner.scan(
            raw, raw.decode("latin-1"), position, plain=is_plain(raw.decode("latin-1"))
        )
        expected: dict[str, list[str]] = {}
        for entry in entries:
            expected.setdefault(entry.key, []).append(entry.value)
        assert values == {key: ", ".join(several) for key, several in expected.items()}
    assert position == len(raw)


def test_the_scanner_returns_only_wanted_attributes_with_all_their_resources() -> None:
    raw = encode_attributes(
        [
            Attribute("Job_Name", "first"),
            Attribute("Resource_List", "1:ppn=2", "nodes"),
            Attribute("Resource_List", "00:20:00", "walltime"),
            Attribute("queue", "batch"),
        ]
    )
    values, _ = AttributeScanner({"Resource_List", "queue"}).scan(raw, raw.decode("latin-1"), 0, plain=False)
    assert values == {
        "Resource_List.nodes": "1:ppn=2",
        "Resource_List.walltime": "00:20:00",
        "queue": "batch",
    }


@pytest.mark.parametrize("plain", [True, False])
def test_repeated_attributes_are_joined_to_one_list(plain: bool) -> None:
    raw = encode_attributes(
        [
            Attribute("max_run", "[u:PBS_GENERIC=3]"),
            Attribute("comment", "not wanted"),
            Attribute("max_run", "[u:ann=1]"),
            Attribute("max_run_res", "[u:PBS_GENERIC=8]", "ncpus"),
            Attribute("max_run_res", "[g:staff=20]", "ncpus"),
            Attribute("max_run_res", "[u:PBS_GENERIC=8gb]", "mem"),
        ]
    )
    scanner = AttributeScanner({"max_run", "max_run_res"})
    for _ in range(2):
        values, position = scanner.scan(raw, raw.decode("latin-1"), 0, plain=plain)
        assert position == len(raw)
        assert values == {
            "max_run": "[u:PBS_GENERIC=3], [u:ann=1]",
            "max_run_res.ncpus": "[u:PBS_GENERIC=8], [g:staff=20]",
            "max_run_res.mem": "[u:PBS_GENERIC=8gb]",
        }


def test_no_module_builds_a_dictionary_that_drops_repeated_attributes() -> None:
    pattern = re.compile(r"\{(\w+)\.(?:key|name): \1\.value for ")
    folder = Path(server_adapter.__file__).parent
    assert [path for path in folder.rglob("*.py") if pattern.search(path.read_text(encoding="utf-8"))] == []


@given(st.lists(attributes, min_size=1, max_size=6), st.data())
def test_every_truncated_attribute_list_is_incomplete(entries: list[Attribute], data: st.DataObject) -> None:
    raw = encode_attributes(entries)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    with pytest.raises(DisIncompleteError) as caught:
        Decoder(cut).attributes()
    assert len(cut) < caught.value.needed <= len(raw)
    with pytest.raises(DisIncompleteError) as caught:
        AttributeScanner().scan(cut, cut.decode("latin-1"), 0, plain=False)
    assert len(cut) < caught.value.needed <= len(raw)


@given(st.binary(max_size=200) | st.text("0123456789+-ab", max_size=200).map(str.encode))
def test_garbage_gives_the_typed_error_or_a_value_and_nothing_else(raw: bytes) -> None:
    for read in (Decoder(raw).integer, Decoder(raw).string, Decoder(raw).attributes):
        with contextlib.suppress(DisError):
            read()
    with contextlib.suppress(DisError):
        AttributeScanner().scan(raw, raw.decode("latin-1"), 0, plain=False)


@given(st.lists(attributes, min_size=1, max_size=6), st.data())
def test_a_damaged_list_gives_the_typed_error_or_a_value(
    entries: list[Attribute], data: st.DataObject
) -> None:
    raw = bytearray(encode_attributes(entries) * 2)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(raw)
    scanner = AttributeScanner()
    with contextlib.suppress(DisError):
        _, position = scanner.scan(damaged, damaged.decode("latin-1"), 0, plain=False)
        scanner.scan(damaged, damaged.decode("latin-1"), position, plain=False)


def test_a_scanner_learns_each_head_once_and_forgets_heads_beyond_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned: list[int] = []
    learn = AttributeScanner._learn

    def counted(scanner: AttributeScanner, data: bytes, text: str, position: int) -> Any:
        learned.append(position)
        return learn(scanner, data, text, position)

    monkeypatch.setattr(AttributeScanner, "_learn", counted)
    monkeypatch.setattr(scan, "_MAX_HEADS", 4)
    expected = [{f"a{number}": "x", f"b{number}": "y"} for number in (1, 1, 2, 3, 4, 1)]
    counts = []
    for values in expected:
        raw = encode_attributes([Attribute(name, value) for name, value in values.items()])
        scanner = shared_scanner(frozenset({"a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4"}), DEFAULT_LIMITS)
        assert scanner.scan(raw, raw.decode("latin-1"), 0, plain=True) == (values, len(raw))
        assert len(scanner._heads) <= 4
        counts.append(len(learned))
    assert counts[:2] == [2, 2]


def test_ten_thousand_lists_of_twelve_attributes_scan_in_well_under_a_second() -> None:
    entries = [Attribute(f"attribute_{number}", "x" * number * 3) for number in range(12)]
    raw = encode_attributes(entries) * 10_000
    text = raw.decode("latin-1")
    scanner, position = AttributeScanner(), 0
    begin = time.process_time()
    while position < len(raw):
        values, position = scanner.scan(raw, text, position, plain=True)
        assert len(values) == 12
    assert time.process_time() - begin < 1.0  # of the processor; 0.07 s when nothing else runs
