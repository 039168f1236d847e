"""What the demo's own endpoints and pages need: the emulated servers, and the mailbox."""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from fastapi import Request

from schedd.api.problems import ProblemError, invalid_problem
from schedd.cli.demo.job_submission import change_job, submit_job
from schedd.cli.demo.mailbox import Mailbox
from schedd.cli.demo.qsub_options import DemoSubmission
from schedd.service.access.roles import Bearer
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import BatchError, ServerRefusedError
from server_adapter.batch.sockets import Address

STATE_KEY: Final = "demo"
_T = TypeVar("_T")


@dataclass(slots=True)
class DemoState:
    """The demo's servers by cluster; they are of one ``family``. Servers appear after the daemon."""

    family: str
    mailbox: Mailbox
    servers: dict[str, Address] = field(default_factory=dict)

    async def submit(self, cluster: str, user: str, submission: DemoSubmission) -> str:
        """Submit a job to the cluster's server; return its id. Raises ProblemError."""
        return await _await_server(
            submit_job(self._server(cluster), self.family, user, submission), "the job"
        )

    async def change(
        self, cluster: str, user: str, code: RequestCode, job: str, attributes: Mapping[str, str]
    ) -> None:
        """Modify, delete, hold or release a job. Raises ProblemError."""
        change = change_job(self._server(cluster), self.family, user, code, job, attributes)
        await _await_server(change, f"this for job {job}")

    def _server(self, cluster: str) -> Address:
        server = self.servers.get(cluster)
        if server is None:
            raise ProblemError("not-ready", "the emulated server is starting", headers={"Retry-After": "2"})
        return server


_FEASIBLE_HINT = "`schedd showstart -l REQUEST` with the same request says what no node has"


async def _await_server(request: Coroutine[Any, Any, _T], what: str) -> _T:
    try:
        return await request
    except ServerRefusedError as error:
        hint = _FEASIBLE_HINT if "feasible" in error.text else None
        raise ProblemError(
            "not-now", f"the server refused {what}: {error.text or error}", hint=hint
        ) from None
    except BatchError as error:
        raise ProblemError("not-ready", str(error)) from None


def demo_state(request: Request) -> DemoState:
    found: DemoState = getattr(request.app.state, STATE_KEY)
    return found


def submitting_user(caller: Bearer, request: Request) -> str:
    """Return the user to whom a submitted job belongs. Raises ProblemError for a caller without a name."""
    if caller is request.app.state.callers.tokens.anonymous:
        raise ProblemError(
            "no-token", "a job needs a user", hint="the demo prints tokens; put one into SCHEDD_TOKEN"
        )
    return caller.name


def invalid_submission(text: str) -> ProblemError:
    return invalid_problem("body.options", text)
