"""Supervised tasks of the adapter: no task ends silently by an exception.

Background tasks are created only here; `tests/test_background_work.py` checks this.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

_log = logging.getLogger(__name__)

_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
_STEADY_S: Final = 60.0  # after this time without a failure the wait is reset

Work = Callable[[], Awaitable[None]]
Failed = Callable[[str, BaseException], None]


async def work_together(works: Mapping[str, Work], ends: tuple[type[Exception], ...], failed: Failed) -> None:
    """Run all tasks until cancelled. A task that raises is logged and restarted with backoff.

    An exception of a type in ``ends`` ends all tasks and is raised in a group. ``failed`` is called with the
    name and any other exception: the task's knowledge of the server may be incomplete.
    """
    async with asyncio.TaskGroup() as group:
        for name, work in works.items():
            group.create_task(_work_on(name, work, ends, failed), name=name)


async def _work_on(name: str, work: Work, ends: tuple[type[Exception], ...], failed: Failed) -> None:
    loop = asyncio.get_running_loop()
    wait = _FIRST_WAIT_S
    while True:
        begun = loop.time()
        try:
            await work()
        except ends:
            raise
        except Exception as error:
            if loop.time() - begun >= _STEADY_S:
                wait = _FIRST_WAIT_S
            _log.exception("%s failed; it starts again in %.0f s", name, wait)
            failed(name, error)
        else:
            return
        await asyncio.sleep(wait * random.uniform(0.8, 1.2))
        wait = min(_LONGEST_WAIT_S, wait * 2)


class TaskSet:
    """Tasks that end by themselves, such as one task for each connection. Their errors are logged, and given
    to ``failed``.
    """

    def __init__(self, name: str, failed: Failed | None = None) -> None:
        self._name = name
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Any:
        return iter(tuple(self._tasks))

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def finished(self) -> None:
        """Wait for the end of all tasks."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Cancel all tasks and wait for their end."""
        for task in tuple(self._tasks):
            task.cancel()
        await self.finished()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", self._name, exc_info=error)
            if self._failed is not None:
                self._failed(self._name, error)
