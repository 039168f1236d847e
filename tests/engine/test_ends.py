"""Starts and ends with errors in their handling: cores are free after an end, and held after a start."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

from schedd.engine import handlers
from schedd.engine.run import jobs, running
from schedd.features.accounts import rules
from schedd.features.accounts.state import AccountBook, account_book
from schedd.features.fair_share import rules as fair_share
from schedd.features.prediction import rules as prediction
from schedd.features.transfers import rules as transfers
from schedd.features.transfers.state import transfer_state
from schedd.predict import RunTimePredictor
from schedd.wire import (
    AccountSet,
    BatchSkipped,
    JobDeleted,
    JobEnded,
    Run,
    ShareFacts,
    SubmissionFacts,
    TransferRequest,
)
from tests.engine.cluster import Cluster, T
from tests.property_examples import some

_SITE = {"accounts": {"by": "account"}, "fair_share": {}, "bookings": {"most": 3}}


class Boom(RuntimeError):
    """An error that no code expects."""


def _cluster() -> Cluster:
    """Job 1 runs on the only node and is charged; job 2 waits for its cores."""
    cluster = Cluster(validate=False, predict=True, site=_SITE, end_allowance=120)
    server = cluster.server
    cluster.send(AccountSet(id=server.event_id(), time=server.now, name="phys", amount=10**9))
    submission = SubmissionFacts("ann", "true", queue="batch", resources={"nodes": "1:ppn=4"})
    cluster.send(TransferRequest(id=server.event_id(), time=server.now, transfer="h", submission=submission))
    transfer_state(cluster.engine.state).by_job["1.s"] = "h"
    cluster.submit("1.s", walltime=1000, runtime=100, account="phys")
    cluster.submit("2.s", walltime=1000, account="phys")
    assert cluster.record("1.s").run.started == T
    return cluster


def _ended(cluster: Cluster) -> None:
    del cluster.server.jobs["1.s"]
    cluster.send(JobEnded(id=cluster.server.event_id(), time=cluster.server.now, job_id="1.s"))


def _deleted(cluster: Cluster) -> None:
    del cluster.server.jobs["1.s"]
    cluster.send(JobDeleted(id=cluster.server.event_id(), time=cluster.server.now, job_id="1.s"))


def _complete(cluster: Cluster) -> None:
    cluster.send(*cluster.server.alter("1.s", state="C", shares=(), started=None))


def _missing(cluster: Cluster) -> None:
    del cluster.server.jobs["1.s"]
    cluster.send(cluster.server.snapshot())


def _requeued(cluster: Cluster) -> None:
    cluster.send(*cluster.server.requeue("1.s"))


_ENDS: list[Callable[[Cluster], None]] = [_ended, _deleted, _complete, _missing, _requeued]
_STEPS: list[tuple[Any, str, str]] = [
    (AccountBook, "release", "what is held for it"),
    (rules, "_charge", "what its end means for accounts"),
    (jobs, "_record_walltime_use", "what it used"),
    (fair_share, "_charged_run", "what its end means for fair_share"),
    (jobs, "note_run_end", "what its end says about its nodes"),
    (RunTimePredictor, "record_end", "its end in the component prediction"),
    (RunTimePredictor, "forget", "its end in the component prediction"),
    (jobs, "unblock_nodes", "that it blocks no node any more"),
    (transfers, "_find_transfer", "its end in the component transfers"),
]


def _boom(*_: Any, **__: Any) -> Any:
    raise Boom


@pytest.mark.parametrize("how", _ENDS, ids=lambda how: how.__name__)
@pytest.mark.parametrize(
    ("where", "name", "words"), _STEPS, ids=lambda value: getattr(value, "__name__", value)
)
def test_end_frees_its_cores_despite_bookkeeping_errors(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, words: str, how: Callable[[Cluster], None]
) -> None:
    cluster = _cluster()
    cluster.at(50)
    called: list[str] = []

    def fail(*_: Any, **__: Any) -> Any:
        called.append(name)
        raise Boom

    with monkeypatch.context() as patch:
        patch.setattr(where, name, fail)
        how(cluster)
    cluster.at(51)
    assert cluster.runs("2.s") == [50]
    if how is not _requeued:
        assert "1.s" not in cluster.engine.state.records
    if called and name != "release":
        (text,) = cluster.alerts("bookkeeping")
        assert text.startswith(f"job 1.s: {words} could not be noted: Boom")


@pytest.mark.parametrize(
    ("where", "name", "words"), _STEPS, ids=lambda value: getattr(value, "__name__", value)
)
def test_each_bookkeeping_step_runs_at_an_end(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, words: str
) -> None:
    cluster = _cluster()
    called: list[str] = []
    real = getattr(where, name)

    def watched(*args: Any, **more: Any) -> Any:
        called.append(words)
        return real(*args, **more)

    monkeypatch.setattr(where, name, watched)
    cluster.at(50)
    _ended(cluster)
    assert called


@pytest.mark.parametrize(
    ("where", "name"),
    [(rules, "_cost"), (running, "judge_start"), (prediction, "_follow_job")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_start_holds_its_cores_despite_bookkeeping_errors(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    cluster = _cluster()
    cluster.at(50)
    cluster.obeys = False
    _ended(cluster)
    (run,) = [one for one in cluster.decisions if getattr(one, "job_id", "") == "2.s" and one.type == "run"]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, _boom)
        cluster.send(*cluster.server.run(run))
    cluster.submit("3.s", walltime=10)
    cluster.at(400)
    assert cluster.record("2.s").phase.value == "running"
    assert cluster.runs("3.s") == []
    assert cluster.alerts("bookkeeping")


def test_two_jobs_without_held_funds_end_in_turn() -> None:
    cluster = Cluster(nodes=2, site={"accounts": {"by": "account"}})
    server = cluster.server
    cluster.send(AccountSet(id=server.event_id(), time=server.now, name="phys", unit="money", amount=5))
    for job in ("1.s", "2.s"):
        cluster.submit(job, walltime=100, account="phys")
    cluster.at(100)
    state = cluster.engine.state
    assert (state.records, account_book(state).held, account_book(state).holds) == ({}, {}, {})
    assert [one.job for one in account_book(state).entries if one.kind == "charge"] == ["1.s", "2.s"]


def test_batch_is_skipped_despite_bookkeeping_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _cluster()
    monkeypatch.setattr(AccountBook, "release", _boom)
    event_id = cluster.server.event_id()
    cluster.send(BatchSkipped(id=event_id, time=T, batch=1, why="a test", jobs=("2.s",)))
    assert cluster.record("2.s").quarantine
    assert cluster.alerts("bookkeeping")


# ---- an error in any function -------------------------------------------------------------------


@contextmanager
def _traced(within: CodeType, at: Callable[[CodeType], None]) -> Iterator[None]:
    """Call ``at`` with each function of the product that is entered while ``within`` is under way."""
    depth = 0

    def trace(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal depth
        if what == "call" and frame.f_code is within:
            depth += 1

            def ends(inner: FrameType, event: str, _: Any) -> Any:
                nonlocal depth
                if event == "return" and inner.f_code is within:
                    depth -= 1
                return ends

            return ends
        if what == "call" and depth and "/schedd/" in frame.f_code.co_filename:
            at(frame.f_code)
        return None

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


def _entered(within: CodeType, act: Callable[[], object]) -> list[CodeType]:
    found: dict[CodeType, None] = {}
    with _traced(within, lambda code: found.setdefault(code, None)):
        act()
    return list(found)


@pytest.mark.parametrize("how", _ENDS, ids=lambda how: how.__name__)
def test_error_in_any_function_during_an_end_frees_all_its_cores(
    how: Callable[[Cluster], None],
) -> None:
    handler = handlers._guarded.__code__
    cluster = _cluster()
    cluster.at(50)
    functions = _entered(handler, lambda: how(cluster))
    assert len(functions) > 20
    for function in some(functions, _ENDS.index(how)):
        cluster = _cluster()
        cluster.at(50)
        times = 0

        def fail(code: CodeType, function: CodeType = function) -> None:
            nonlocal times
            if code is function and not times:
                times += 1
                sys.settrace(None)  # nothing more is looked for, and tracing takes long
                raise Boom

        with _traced(handler, fail):
            how(cluster)
        assert times == 1
        cluster.send(cluster.server.snapshot())
        cluster.at(60)
        assert cluster.runs("2.s") == [50], function.co_qualname


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "by hand"])
def test_error_in_any_function_during_a_start_keeps_its_cores_occupied(ours: bool) -> None:
    def before() -> tuple[Cluster, list[Any]]:
        cluster = _cluster()
        cluster.obeys = False
        if not ours:
            cluster.engine.pause("a test")
        cluster.at(50)
        _ended(cluster)
        if ours:
            (run,) = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == "2.s"]
            return cluster, cluster.server.run(run)
        cluster.engine.resume()
        return cluster, cluster.server.start("2.s", (ShareFacts("n1", 4),))

    handler = handlers._guarded.__code__
    cluster, events = before()
    functions = _entered(handler, lambda: cluster.engine.handle(events, cluster.server.now))
    assert len(functions) > 20
    for function in some(functions, ours):
        cluster, events = before()
        times = 0

        def fail(code: CodeType, function: CodeType = function) -> None:
            nonlocal times
            if code is function and not times:
                times += 1
                sys.settrace(None)
                raise Boom

        with _traced(handler, fail):
            cluster.engine.handle(events, cluster.server.now)
        assert times == 1
        cluster.submit("3.s", walltime=10)
        cluster.at(400)  # no snapshot comes
        assert cluster.runs("3.s") == [], function.co_qualname
