"""Parsing of cost limits."""

import pytest

from schedd.dialect import RequestError
from schedd.dialect.cost_limit import cost_limit_names, read_cost_limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("2.50", 2.5),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("2,50", None),
        ("", None),
    ],
)
def test_cost_limit_is_a_number_that_is_not_negative(text: str, limit: float | None) -> None:
    assert read_cost_limit({"cost_limit": text}) == limit
    assert read_cost_limit({"x.cost_limit": text}) == limit
    if text and limit is None:
        with pytest.raises(RequestError, match="is no limit of a cost"):
            cost_limit_names({"cost_limit": text})
    else:
        assert cost_limit_names({"cost_limit": text}) == ({"cost_limit"} if text else set())


def test_request_without_cost_limit_has_none() -> None:
    assert read_cost_limit({"walltime": "60"}) is None
