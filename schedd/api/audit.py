"""Audit entries of actions: who did what, including refused attempts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from schedd.api.problems import ProblemError
from schedd.service.cluster.errors import PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop

__all__ = ["AuditEntry", "audit_act"]

_MAX_REASON_LENGTH: Final = 400
"""Characters of a reason that are kept."""


@dataclass(slots=True)
class AuditEntry:
    """What the audit is to say of an act; it may become known while the act is done."""

    who: str
    detail: str


@asynccontextmanager
async def audit_act(cluster: PlanLoop, who: str, act: str, detail: str = "") -> AsyncIterator[AuditEntry]:
    """Note the act in the audit when the block ends: as done, or as refused where it raises ProblemError.

    Raises PlannerStopped when the database fails after the act was done.
    """
    noted = AuditEntry(who, detail)
    try:
        yield noted
    except ProblemError as error:
        words = f"refused: {noted.detail}: {error.detail}" if noted.detail else f"refused: {error.detail}"
        with suppress(PlannerStopped):  # nothing was done
            await asyncio.to_thread(cluster.audit, noted.who, act, words[:_MAX_REASON_LENGTH])
        raise
    await asyncio.to_thread(cluster.audit, noted.who, act, noted.detail)
