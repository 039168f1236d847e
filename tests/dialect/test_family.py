"""Error numbers, holds and dependencies of each server family."""

import pytest

from schedd.dialect import DIALECTS, Hold, RequestError, Site, Until, conditions, find_dialect, holds_in
from schedd.wire import JobFacts


def _job(family: str, **resources: str) -> JobFacts:
    return JobFacts(id="1.s", owner="ann", queue="q", submitted=0, family=family, resources=resources)


def test_busy_error_number_depends_on_the_family() -> None:
    assert find_dialect("torque").is_busy(15046)
    assert not find_dialect("openpbs").is_busy(15046)
    assert find_dialect("openpbs").is_busy(15044)
    assert not find_dialect("torque").is_busy(15044)


def test_deletion_or_success_does_not_count_against_the_node() -> None:
    for dialect in DIALECTS.values():
        assert [dialect.speaks_against_node(status) for status in (0, 265, 271, 1, -3)] == [
            False,
            False,
            False,
            True,
            True,
        ]


def test_job_without_family_is_read_as_torque() -> None:
    site = Site(defaults={})
    assert find_dialect("").read(_job("", nodes="2:ppn=3"), site).cpus == 6
    assert find_dialect("openpbs").read(_job("openpbs", select="2:ncpus=4"), site).cpus == 8


def test_job_from_an_unknown_family_is_refused() -> None:
    dialect = find_dialect("lsf")
    assert not dialect.is_busy(15046)
    with pytest.raises(RequestError, match="lsf"):
        dialect.read(_job("lsf"), Site(defaults={}))


def test_hold_letters_name_each_hold_once_and_n_names_none() -> None:
    assert holds_in("n") == holds_in("") == ()
    assert holds_in("uos") == (Hold.USER, Hold.OPERATOR, Hold.SYSTEM)
    assert holds_in("l") == (Hold.SLOT_LIMIT,)
    assert holds_in("px") == (Hold.OTHER,)


def test_conditions_are_the_dependencies_that_hold_the_job_itself() -> None:
    found = list(conditions("afterok:1.s@s:2.s,beforeany:3.s,afteranyarray:4[].s,synccount:2"))
    assert found == [
        (Until.SUCCEEDED, "1.s", "afterok"),
        (Until.SUCCEEDED, "2.s", "afterok"),
        (Until.ENDED, "4[].s", "afteranyarray"),
        (Until.UNSUPPORTED, "2", "synccount"),
    ]
    assert [condition.until for condition in conditions("runone:5.s,on:2")] == [Until.OTHER]


def test_schedselect_overrides_select_and_is_not_noted() -> None:
    job = _job("openpbs", select="2", schedselect="2:ncpus=3")
    request = find_dialect("openpbs").read(job, Site(defaults={}))
    assert request.cpus == 6
    assert request.notes == ()


def test_a_job_that_exceeded_a_limit_says_nothing_of_its_node() -> None:
    """Jobs of 20 s that OpenPBS 23.06 ended at their walltime closed a sound node."""
    torque, openpbs = find_dialect("torque"), find_dialect("openpbs")
    assert [torque.speaks_against_node(status) for status in (-9, -10, -11, -12, -13)] == [1, 0, 0, 0, 1]
    found = [openpbs.speaks_against_node(status) for status in (-23, -24, -29, -30, -11, -14)]
    assert found == [1, 0, 0, 1, 0, 1]
