"""Writes plans on OpenPBS jobs: `estimated.*`, and comments in scheduler mode."""

import logging
import time
from dataclasses import replace
from typing import Final

from schedd.wire import WriteAttributes
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import ManageRequest
from server_adapter.bridge.facts import parse_or
from server_adapter.bridge.job_comments import is_ours, start_to_write
from server_adapter.bridge.link import ServerLink
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.state import EMPTY_STATE, ServerState, WrittenAttributes
from server_adapter.bridge.write_queue import AttributeWrite
from server_adapter.bridge.write_rights import RETRY_S, WriteRights
from server_adapter.dis import Attribute, Operation
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.openpbs.notation import parent, seconds
from server_adapter.servers.job_requests import SCHEDULING_QUERY, modify_request
from server_adapter.servers.openpbs.requests import (
    comment_attribute,
    estimate,
    length,
    no_length,
)

_log = logging.getLogger(__name__)

_OVERTAKEN = frozenset(
    {
        OpenPBSErrorCode.UNKJOBID,
        OpenPBSErrorCode.BADSTATE,
        OpenPBSErrorCode.MODATRRUN,
        OpenPBSErrorCode.HISTJOBID,
        OpenPBSErrorCode.IVALREQ,
    }
)
_UNANSWERED: Final = 8
"""Number of writes without a reply in a row. Each takes the server about 2 ms, and may delay a run."""
_OWN_LENGTHS = frozenset({"soft_walltime", "min_walltime", "max_walltime"})
COMMENTS: Final = "comments"
ESTIMATES: Final = "estimates"
_NEEDED_RIGHTS: Final = {COMMENTS: "it takes an operator's rights", ESTIMATES: "it takes a manager's rights"}
_NO_RIGHT = frozenset({OpenPBSErrorCode.ATTRRO, OpenPBSErrorCode.PERM})


class OpenPBSJobWriter:
    """Writes attributes of jobs. For an array it writes one value on the parent: the earliest start of its
    waiting subjobs.

    The first write of each connection has a reply, as has one every `RETRY_S` seconds, so that missing rights
    are noticed. Other writes use requests without a reply (they run no `modifyjob` hooks); after every few of
    them a cheap request waits until the server has processed them. `pace` records their time. Estimates are
    `expected` starts if the site enables that; predicted run times (`lengths`) are written as well.
    """

    def __init__(
        self,
        link: ServerLink[OpenPBSConnection],
        pace: AdaptiveRateLimiter,
        *,
        comments: bool,
        expected: bool = False,
        lengths: bool = False,
    ) -> None:
        self._link = link
        self._pace = pace
        self._expected = expected
        self._lengths = lengths
        self._state = EMPTY_STATE
        self._starts: dict[str, dict[str, int | None]] = {}
        self._written: dict[str, int | None] = {}
        self._proved: OpenPBSConnection | None = None  # the connection with an acknowledged write
        self._unanswered = 0
        self._spent = 0.0
        self._comments = comments
        self.rights = WriteRights(*([COMMENTS] if comments else []), ESTIMATES)
        self._proved_at = float("-inf")

    @property
    def comments(self) -> bool:
        """Whether comments are written at present."""
        return self._comments and self.rights.may_write(COMMENTS)

    def update_state(self, state: ServerState) -> None:
        """Forget subjobs that no longer wait, and vanished arrays."""
        self._state = state
        for array, starts in list(self._starts.items()):
            for job in [
                job for job in starts if (found := state.jobs.get(job)) is None or found.state != "Q"
            ]:
                del starts[job]
            if not starts:
                del self._starts[array]
                self._written.pop(array, None)

    async def write(self, write: AttributeWrite) -> bool:
        """Write a plan on a job; return False if it should be written again, with fewer attributes."""
        decision = write.decision
        if "[" in decision.job_id:
            return await self._write_on_array(write)
        attributes = []
        if self.rights.may_write(ESTIMATES):
            attributes += estimate(start_to_write(decision, expected=self._expected), decision.planned_nodes)
            attributes += self._length(decision)
        if self.comments and write.comment_free:
            attributes.append(comment_attribute(decision))
        return not attributes or await self._send(modify_request(decision.job_id, attributes))

    async def comment(self, job: str, text: str) -> None:
        """Set the comment. A subjob has the comment of its parent, so it is skipped."""
        if "[" not in job and self.comments:
            await self._send(modify_request(job, [Attribute("comment", text)]))

    async def clean(self, job: str, writing: WrittenAttributes) -> bool:
        """Remove the adapter's attributes from a job; an estimate of 0 is shown as unknown."""
        gone = [Attribute("comment", operation=Operation.UNSET)] if is_ours(writing.comment) else []
        if writing.planned_start is not None or writing.planned_nodes:
            gone += estimate(None, ())
        if writing.length:
            gone += no_length()
        if gone:
            self._proved = None  # the result is not read back, so each removal needs a reply
            await self._send(modify_request(parent(job), gone))
        return bool(gone)

    async def flush(self) -> None:
        """Wait until the server has processed all writes."""
        if self._unanswered:
            self._unanswered = 0
            async with self._link.borrow() as connection:
                await connection.describe(SCHEDULING_QUERY)

    async def _write_on_array(self, write: AttributeWrite) -> bool:
        if not self.rights.may_write(ESTIMATES):
            return True
        decision, array = write.decision, parent(write.decision.job_id)
        starts = self._starts.setdefault(array, {})
        starts[decision.job_id] = own_start = start_to_write(decision, expected=self._expected)
        soonest = min((start for start in starts.values() if start is not None), default=None)
        tries = self.rights.seconds_until_try == 0
        if array in self._written and self._written[array] == soonest and not tries:
            return True
        nodes = decision.planned_nodes if soonest == own_start else ()
        self._written[array] = soonest
        attributes = estimate(soonest, nodes) + self._length(decision)
        done = await self._send(modify_request(array, attributes))
        if not done:
            self._written.pop(array, None)
        return done

    def _length(self, decision: WriteAttributes) -> list[Attribute]:
        """Return attributes for the predicted run time below the walltime, without own ones."""
        job = (
            self._state.jobs.get(decision.job_id) if self._lengths and decision.runs_for is not None else None
        )
        if job is None or decision.runs_for is None or _OWN_LENGTHS & job.resources.keys():
            return []
        walltime = parse_or(seconds, job.resources.get("walltime"), default=0)
        return length(decision.runs_for) if 0 < decision.runs_for < walltime else []

    async def _request(self, connection: OpenPBSConnection, request: ManageRequest) -> None:
        now = time.monotonic()
        tries = self.rights.seconds_until_try is not None
        if connection is not self._proved or tries or now - self._proved_at >= RETRY_S:
            await connection.request(request)
            self._proved, self._proved_at = connection, now
            self._note_accepted(request)
            return
        await connection.request(replace(request, code=RequestCode.MODIFY_JOB_ASYNC))
        self._unanswered += 1
        if self._unanswered >= _UNANSWERED:
            self._unanswered = 0
            await connection.describe(SCHEDULING_QUERY)

    async def _send(self, request: ManageRequest) -> bool:
        try:
            async with self._link.borrow() as connection:
                if connection is not self._proved:
                    self._unanswered, self._spent = 0, 0.0
                began = time.monotonic()
                try:
                    await self._request(connection, request)
                finally:
                    # Only the time of the requests: in between other tasks have the connection, or runs have
                    # precedence.
                    ended = time.monotonic()
                    self._spent += ended - began
                    if not self._unanswered:
                        self._pace.record(ended - self._spent, ended)
                        self._spent = 0.0
        except ServerRefusedError as error:
            if error.code in _NO_RIGHT:
                self._note_refused(request, error)
                return False
            # Usually a job that has vanished or has just started.
            level = logging.DEBUG if error.code in _OVERTAKEN else logging.WARNING
            _log.log(level, "nothing was written on %s: %s", request.name, error)
        return True

    def _note_refused(self, request: ManageRequest, error: ServerRefusedError) -> None:
        """Leave out what was refused. An operator may write comments but no estimates; the text of such a
        refusal names the attribute. A user without rights may write neither.
        """
        parts = _parts(request)
        if error.code == OpenPBSErrorCode.ATTRRO and len(parts) > 1:
            parts = {COMMENTS} if str(error).rstrip(" )").endswith("comment") else {ESTIMATES}
        for part in sorted(parts):
            text = f"{part} are not written on jobs: {_NEEDED_RIGHTS[part]} ({error})"
            if self.rights.deny(part, text):
                _log.warning("%s", text)

    def _note_accepted(self, request: ManageRequest) -> None:
        for part in sorted(_parts(request)):
            if self.rights.grant(part):
                _log.info("%s are written again", part)
                self._written.clear()


def _parts(request: ManageRequest) -> set[str]:
    return {COMMENTS if one.name == "comment" else ESTIMATES for one in request.attributes}
