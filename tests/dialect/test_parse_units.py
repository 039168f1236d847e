import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.dialect import RequestError, format_size, format_walltime, parse_size, parse_walltime
from schedd.dialect.units import format_rounded_size, without_units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("01:30", 90),
        ("01:00:00", 3600),
        ("100:00:00", 360_000),
        ("1:00:00:00", 86_400),
        ("2:03:04:05", 2 * 86_400 + 3 * 3600 + 4 * 60 + 5),
        ("90:90", 90 * 61),
        ("59.4", 59),
        ("59.499", 59),
        ("59.5", 60),
        ("00:01.", 1),
    ],
)
def test_walltime_is_read_in_the_servers_formats(text: str, seconds: int) -> None:
    assert parse_walltime(text) == seconds


@pytest.mark.parametrize(
    ("text", "kib"),
    [
        ("0", 0),
        ("1", 1),
        ("1024", 1),
        ("1025b", 2),
        ("1kb", 1),
        ("512mb", 524_288),
        ("2GB", 2_097_152),
        ("2g", 2_097_152),
        ("1tb", 1 << 30),
        ("1pb", 1 << 40),
        ("1w", 1),
        ("256W", 2),
        ("1kw", 8),
        ("1Mw", 8192),
    ],
)
def test_size_is_read_in_kib_rounded_up(text: str, kib: int) -> None:
    assert parse_size(text) == kib


@pytest.mark.parametrize(
    "text", ["", " ", "1:2:3:4:5", "1::2", "-1", "1x", "h", "1m2h", "1.x", "\u0661", "9" * 5000, "1\n"]
)
def test_invalid_walltime_names_the_allowed_format(text: str) -> None:
    with pytest.raises(RequestError, match="HH:MM:SS"):
        parse_walltime(text)


@pytest.mark.parametrize(
    "text", ["", "gb", "1.5gb", "-1gb", "1 gb", "1gbb", "1bb", "1zb", "\u0662gb", "1gb\n"]
)
def test_invalid_size_names_the_allowed_format(text: str) -> None:
    with pytest.raises(RequestError, match=r"invalid size .*; allowed: a whole number and b, kb, mb"):
        parse_size(text)


@pytest.mark.parametrize("text", ["1025pb", "2eb", "9" * 5000, "99999999999999999999"])
def test_size_above_the_maximum_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="the size is too large; allowed: at most 1024pb"):
        parse_size(text)


@given(st.integers(0, 2**50))
def test_formatted_size_parses_to_the_same_size(kib: int) -> None:
    assert parse_size(format_size(kib)) == kib


@given(st.integers(0, 10**9))
def test_formatted_walltime_parses_to_the_same_walltime(seconds: int) -> None:
    assert parse_walltime(format_walltime(seconds)) == seconds


def test_sizes_and_walltimes_are_written_in_the_servers_format() -> None:
    assert [format_size(kib) for kib in (0, 1, 1536, 2_097_152)] == ["0kb", "1kb", "1536kb", "2gb"]
    assert [format_walltime(seconds) for seconds in (5, 3600, 360_000)] == [
        "00:00:05",
        "01:00:00",
        "100:00:00",
    ]


@pytest.mark.parametrize(
    ("kib", "words"),
    [
        (0, "0kb"),
        (512, "512kb"),
        (2048, "2mb"),
        (900 << 20, "900gb"),
        (24_684_100, "23.54gb"),
        (99_999, "99999kb"),
        (100_001, "97.65mb"),
        ((3 << 50) + 1, "3072.00pb"),
    ],
)
def test_spelled_size_has_a_readable_unit(kib: int, words: str) -> None:
    assert format_rounded_size(kib) == words


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("1h", 3600), ("2d", 172_800), ("1h30m", 5400), ("45S", 45)]
)
def test_walltime_may_have_units(text: str, seconds: int) -> None:
    assert parse_walltime(text) == seconds


def test_numbers_without_units_are_reported_with_their_meaning() -> None:
    said = list(without_units({"walltime": "1", "MEM": "2048", "nodes": "4", "vmem": "4gb", "pmem": "x"}))
    assert said == [
        "walltime 1 was read as 1 second (00:00:01)",
        "mem 2048 was read as 2048 bytes (2kb); write 2048gb or 2048mb for more",
    ]
    chunks = {"select": "2:ncpus=4:mem=8+1:mem=4gb:vmem=9", "walltime": "01:00:00"}
    assert [one.partition(" was")[0] for one in without_units(chunks)] == ["mem 8", "vmem 9"]
    assert list(without_units({"walltime": "9" * 400, "mem": "9" * 400, "vmem": "\u0664"})) == []
