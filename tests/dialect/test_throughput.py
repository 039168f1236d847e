"""Parsing of work amounts and work rates of jobs."""

import pytest

from schedd.dialect import parse_openpbs, parse_torque, request_family
from schedd.dialect.throughput import Work, parse_rates, read_work, work_names

UNITS, RATE, APP = "x.work_units", "x.work_rate", "x.work_app"


@pytest.mark.parametrize(
    ("resources", "work"),
    [
        ({UNITS: "12000", RATE: "7.5"}, Work(12_000, 7.5)),
        ({UNITS: "12000", RATE: "epyc/10.87+old/5.8"}, Work(12_000, 0, (("epyc", 10.87), ("old", 5.8)))),
        ({UNITS: "12000", RATE: "epyc/1e1+3"}, Work(12_000, 3, (("epyc", 10.0),))),
        ({UNITS: "12000", APP: "emo"}, Work(12_000, app="emo")),
        ({UNITS: "0.5", RATE: "1", APP: "emo"}, Work(0.5, 1, app="emo")),
        ({"work_units": "5", "work_rate": "1"}, Work(5, 1)),
        ({UNITS: "12000"}, None),
        ({RATE: "7.5"}, None),
        ({UNITS: "many", RATE: "7.5"}, None),
        ({UNITS: "0", RATE: "7.5"}, None),
        ({UNITS: "inf", RATE: "7.5"}, None),
        ({UNITS: "5", RATE: "fast"}, None),
    ],
)
def test_job_states_its_work_and_rate(resources: dict[str, str], work: Work | None) -> None:
    assert read_work({"nodes": "1", **resources}) == work
    assert work_names({"nodes": "1", **resources}) == (set(resources) if work is not None else set())


@pytest.mark.parametrize("text", ["", "0", "-1", "epyc/", "/5", "a/1+a/2", "1+2", "epyc/nan", "epyc=5"])
def test_invalid_rate_names_the_allowed_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"epyc/10.87\+old/5.8"):
        parse_rates(text)


def test_only_an_invalid_work_amount_is_noted() -> None:
    for parse in (parse_torque, parse_openpbs):
        good = parse({"nodes": "1", UNITS: "5", RATE: "2"})
        bad = parse({"nodes": "1", UNITS: "five", RATE: "2"})
        assert not any("work" in note for note in good.notes)
        assert any("work_units" in note for note in bad.notes), bad.notes
    assert request_family({"nodes": "1", UNITS: "5"}) == "torque"
