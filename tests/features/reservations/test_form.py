"""The administrators' form for reservations."""

import pytest

from schedd.api.problems import ProblemError
from schedd.features.reservations.page import _parse_reservation

FORM = {"kind": "features", "where": "lab, ib"}


def test_form_reserves_cores_gpus_and_memory_in_total() -> None:
    found = _parse_reservation({**FORM, "cores": "8", "gpus": "2", "mem": "16gb", "total": "1"})
    assert (found.features, found.cores, found.gpus, found.mem, found.total) == (
        ("lab", "ib"),
        8,
        2,
        16 << 20,
        True,
    )
    whole = _parse_reservation(FORM)
    assert (whole.cores, whole.gpus, whole.mem, whole.total) == (0, 0, 0, False)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"mem": "16 apples"}, "mem: "),
        ({"gpus": "two"}, "gpus: write a whole"),
        ({"mem": "-1gb"}, "mem: "),
    ],
)
def test_form_names_the_field_that_cannot_be_read(wrong: dict[str, str], reason: str) -> None:
    with pytest.raises(ProblemError) as error:
        _parse_reservation({**FORM, **wrong})
    assert error.value.detail.startswith(reason)
