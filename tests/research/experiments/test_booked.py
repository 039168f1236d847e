"""Jobs of a log as bookings, under each order; the experiment that compares them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from research.experiments import bookings as booked
from research.experiments.bookings import DAYS, PROCS, Asked, asked_of, book_all
from research.studies import bookings as experiment_bookings
from research.studies import command
from schedd.features.bookings.state import Booking
from schedd.replay.machine_state import ReplayDefectError
from schedd.replay.workload import TraceError, TraceJob

DAY = 86_400
LINE = "{id} {submit} 0 {run} {procs} -1 -1 {procs} {run} -1 1 1 1 -1 1 -1 -1 -1\n"


def make_request(submit: int, length: int, cpus: int, ready: int, deadline: int, run: int = 0) -> Asked:
    return Asked(submit, length, run or length, cpus, ready, deadline)


def log(count: int, every: int) -> list[TraceJob]:
    return [
        TraceJob(id=n, submit=n * every, run=30 + 997 * n % 20_000, procs=1 + 37 * n % 160)
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("order", "taken", "moves"), [("edf", 2, 1), ("lff", 2, 1), ("bjf", 1, 0), ("fifo", 1, 0)]
)
def test_by_deadline_and_by_flexibility_who_came_first_makes_way(order: str, taken: int, moves: int) -> None:
    wishes = [make_request(0, 3_000, PROCS, 1_000, 9_000), make_request(1, 1_000, PROCS, 1_000, 2_500)]
    found = book_all(wishes, order, 100)
    assert (found.asked, found.taken, found.moves, found.moved, found.breaches) == (2, taken, moves, moves, 0)
    work = (3_000 + 1_000 * (taken - 1)) * PROCS
    assert found.used == pytest.approx(work / (PROCS * DAYS * DAY))


@pytest.mark.parametrize(("freeze", "taken"), [(0, 1), (10, 1), (60, 2), (100, 2)])
def test_who_is_frozen_makes_way_no_more(freeze: int, taken: int) -> None:
    wishes = [make_request(0, 3_000, PROCS, 1_000, 9_000), make_request(500, 1_000, PROCS, 1_000, 2_500)]
    assert book_all(wishes, "edf", freeze).taken == taken


@pytest.mark.parametrize(("accept", "taken", "stretch"), [(None, 1, None), (0.25, 1, None), (0.5, 2, 0.5)])
def test_who_is_refused_takes_the_nearest_offer_that_is_near_enough(
    accept: float | None, taken: int, stretch: float | None
) -> None:
    wishes = [make_request(0, 3_000, PROCS, 2_000, 5_000), make_request(1, 1_000, PROCS, 1_500, 2_500)]
    found = book_all(wishes, "fifo", 100, accept)
    assert (found.taken, found.offered, found.stretch) == (taken, taken - 1, stretch)


def test_what_ends_early_is_free_for_who_comes_then() -> None:
    wishes = [
        make_request(0, 3_000, PROCS, 0, 3_000, run=1_000),
        make_request(1_500, 1_000, PROCS, 1_500, 2_500),
    ]
    assert book_all(wishes, "fifo", 100).taken == 2
    assert book_all([wishes[0], make_request(999, 1_000, PROCS, 999, 2_500)], "fifo", 100).taken == 1


def test_what_lies_beyond_the_window_is_no_use() -> None:
    end = DAYS * DAY
    assert book_all(
        [make_request(0, DAY, PROCS, end - 3_600, end + 3 * DAY)], "fifo", 100
    ).used == pytest.approx(3_600 / end)


def test_a_booking_that_begins_elsewhere_than_it_was_told_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure is one that can fail: here a window is taken for another than was asked for."""
    real: Callable[..., None] = booked._BookingRequests._see

    def _note_window(requests: Any, i: int, booking: Booking) -> None:
        requests._window[i] = 0, 1
        real(requests, i, booking)

    monkeypatch.setattr(booked._BookingRequests, "_see", _note_window)
    assert book_all([make_request(0, 100, 1, 0, 1_000)], "edf", 100).breaches == 1


def test_a_booking_that_never_begins_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(booked._BookingRequests, "_see", lambda *_: None)
    with pytest.raises(ReplayDefectError, match="1 bookings were taken, and 0 began"):
        book_all([make_request(0, 100, 1, 0, 1_000)], "edf", 100)


def test_jobs_of_a_log_ask_for_their_processors_by_a_deadline() -> None:
    jobs = log(3_000, 1_200)
    fixed = asked_of(jobs, 0, 1, 0, 0, 1, exact=True)
    assert len(fixed) == pytest.approx(DAYS * DAY / 1_200 * 128 / 160, rel=0.05)
    assert all(one.cpus <= PROCS and one.length >= 60 for one in fixed)
    assert all(one.ready + one.length == one.deadline and one.run == one.length for one in fixed)
    later = sum((one.deadline - one.submit) / one.length for one in fixed) / len(fixed)
    assert later == pytest.approx(5, abs=0.3)
    assert all(one.ready >= one.submit for one in fixed)
    long = asked_of(jobs, 0, 1, 0, 100, 1, exact=True)
    assert [(one.submit, one.ready, one.length) for one in long] == [
        (one.submit, one.ready, one.length) for one in fixed
    ]
    spare = [(one.deadline - one.ready) / one.length - 1 for one in long]
    assert sum(one > 0 for one in spare) / len(spare) == pytest.approx(0.5, abs=0.05)
    assert sum(spare) / sum(one > 0 for one in spare) == pytest.approx(1, abs=0.05)
    early = asked_of(jobs, 0, 1, 0, 0, 1, exact=False)
    assert sum(one.run / one.length for one in early) / len(early) == pytest.approx(0.8, abs=0.02)
    assert all(one.run <= one.length for one in early)


def test_windows_lie_over_the_whole_log_and_denser_ones_have_more_jobs() -> None:
    jobs = log(9_000, 600)
    plain, dense = (asked_of(jobs, 1, 2, more, 0, 1, exact=True) for more in (0, 50))
    assert len(dense) == pytest.approx(1.5 * len(plain), rel=0.05)
    assert max(one.submit for one in dense) < DAYS * DAY
    first, last = (
        {(one.length, one.cpus) for one in asked_of(jobs, window, 2, 0, 0, 1, exact=True)}
        for window in (0, 1)
    )
    fit = [(one.run, one.procs) for one in jobs if one.run >= 60 and one.procs <= PROCS]
    assert (fit[0] in first, fit[0] in last) == (True, False)
    assert (fit[-2] in first, fit[-2] in last) == (False, True)
    with pytest.raises(TraceError, match=r"3 windows of 22 days are needed, and the log has 2"):
        asked_of(jobs, 0, 3, 50, 0, 1, exact=True)


def _here(run: Callable[..., Any], todo: Sequence[Any], _: int | None) -> list[Any]:
    """In this process: the figures are the same, and no worker has to begin."""
    return [run(*args) for args in todo]


def test_the_experiment_writes_a_page_beside_what_the_thesis_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        LINE.format(id=one.id, submit=one.submit, run=one.run, procs=one.procs) for one in log(1_100, 4_320)
    ]
    (tmp_path / "log.swf").write_text("; MaxProcs: 128\n" + "".join(lines))
    monkeypatch.setattr(experiment_bookings, "_LOG", "log.swf")
    monkeypatch.setattr(experiment_bookings, "_QUICK", 12)
    monkeypatch.setattr(experiment_bookings, "_WINDOWS", 2)
    monkeypatch.setattr(experiment_bookings, "at_once", _here)
    experiment_bookings.run_bookings(tmp_path, tmp_path, quick=True, only=(), repetitions=2)
    page = (tmp_path / "bookings-quick.md").read_text()
    assert "python -m research experiment bookings --quick --repetitions 2 --logs LOGS" in page
    assert "Promises broken in all 222 runs: 0" in page
    assert "| as submitted | 46.8 ± 3.3 |" in page
    assert page.count("| long, 100 % |") == 6
    assert "| EDF with flexible intervals uses most, at every load |" in page
    assert (tmp_path / "bookings-quick.png").stat().st_size > 10_000
    with pytest.raises(TraceError, match=r"--repetitions 3: at most 2"):
        experiment_bookings.run_bookings(tmp_path, tmp_path, quick=True, only=(), repetitions=3)
    with pytest.raises(TraceError, match=r"it has no log\.swf"):
        experiment_bookings.run_bookings(tmp_path / "none", tmp_path, quick=True, only=())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bookings", "--jobs", "5"], "--jobs is for routing"),
        (["bookings", "--part", "rest"], "no --part"),
        (["bookings"], "it has no SDSC-SP2-1998-4.2-cln.swf.gz"),
    ],
)
def test_what_makes_no_sense_is_said(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run([*words, "--logs", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
