"""The adapter's tasks: failed ones restart; fatal errors end the adapter."""

import asyncio
import logging

import pytest

from server_adapter.batch import supervision
from server_adapter.batch.errors import TakenError
from server_adapter.batch.supervision import TaskSet, work_together
from tests.waits import WAIT_S


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_FIRST_WAIT_S", 0.01)


def test_work_that_raises_starts_again_while_the_other_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        errors, failed = [MemoryError(), KeyError("a")], []
        again, other_ended = asyncio.Event(), False

        async def reading() -> None:
            if errors:
                raise errors.pop()
            again.set()
            await asyncio.sleep(WAIT_S)

        async def sending() -> None:
            nonlocal other_ended
            try:
                await asyncio.sleep(WAIT_S)
            finally:
                other_ended = True

        works = {"reading": reading, "sending": sending}
        work = asyncio.ensure_future(work_together(works, (TakenError,), lambda work, _: failed.append(work)))
        await asyncio.wait_for(again.wait(), WAIT_S)
        assert (other_ended, len(failed)) == (False, 2)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert [line.getMessage().partition(";")[0] for line in caplog.records] == ["reading failed"] * 2
    assert all(line.exc_info for line in caplog.records)


def test_an_error_that_is_to_end_the_adapter_ends_it() -> None:
    async def port_in_use() -> None:
        raise TakenError("another scheduler")

    async def sending() -> None:
        await asyncio.sleep(WAIT_S)

    with pytest.raises(BaseExceptionGroup) as raised:
        asyncio.run(
            work_together({"a": port_in_use, "b": sending}, (TakenError,), lambda _work, _error: None)
        )
    assert raised.group_contains(TakenError)


def test_a_task_that_ends_by_an_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tasks = TaskSet("a run decision")

        async def failing() -> None:
            raise MemoryError

        tasks.spawn(failing())
        await tasks.finished()
        assert not tasks

    asyncio.run(main())
    assert "a run decision failed" in caplog.text
