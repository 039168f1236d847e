"""Requests for job arrays, and access lists of queues and servers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.dialect import RequestError
from schedd.dialect.access_list import admits_group, admits_user
from schedd.dialect.array_request import ArrayRequest, parse_array_request


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", ArrayRequest(1)),
        ("1-100", ArrayRequest(100)),
        ("0-9%3", ArrayRequest(10, 3)),
        ("0-9:3", ArrayRequest(4)),
        ("1,5,7-9%2", ArrayRequest(5, 2)),
        ("1-3,2-4", ArrayRequest(4)),
        ("1-100000", ArrayRequest(100_000)),
    ],
)
def test_array_requests_of_both_families_are_read(text: str, expected: ArrayRequest) -> None:
    assert parse_array_request(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "5-1",
        "1-",
        "1-9:0",
        "1-9%",
        "1-9%0",
        "1-9%x",
        "1;2",
        "1-999999999",
        "²",
        "1%9999999999",
        "0-49999,0-49999,0",
    ],
)
def test_odd_array_requests_are_refused(text: str) -> None:
    with pytest.raises(RequestError):
        parse_array_request(text)


@pytest.mark.parametrize(
    ("printed", "user", "admitted"),
    [
        ("", "ann", False),
        ("ann,bob", "ann", True),
        ("ann,bob", "eve", False),
        ("anna", "ann", False),
        ("-eve,+", "eve", False),
        ("-eve,+", "ann", True),
        ("+ann,-", "ann", True),
        ("ann@*.site", "ann@login.site", True),
        ("ann@*.site", "ann@login.other", False),
        ("ann@*", "ann@login", True),
        ("ann@login.site", "ann", True),  # the host is not known
        ("-ann@old.site,ann", "ann", True),
        ("-ann@old.site,ann", "ann@old.site", False),
        ("-ann,ann", "ann", False),
    ],
)
def test_the_first_matching_entry_of_an_access_list_decides(printed: str, user: str, admitted: bool) -> None:
    assert admits_user(printed, user) is admitted


@given(
    st.lists(st.tuples(st.sampled_from("+-="), st.sampled_from("abc")), max_size=6),
    st.sets(st.sampled_from("abcd")),
)
def test_access_lists_of_groups_agree_with_a_plain_reading(
    entries: list[tuple[str, str]], groups: set[str]
) -> None:
    printed = ", ".join((sign if sign != "=" else "") + name for sign, name in entries)
    matching = [sign != "-" for sign, name in entries if name in groups]
    assert admits_group(printed, groups) is (matching[0] if matching else False)
