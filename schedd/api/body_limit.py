"""Bodies that are too large are refused while they come, not after they filled the memory."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schedd.api.problems import ProblemError, problem_response


class _BodyTooLarge(Exception):
    """More came than is allowed."""


class BodyLimit:
    """Answers 413 to requests with a body larger than ``most`` bytes."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._most:
            await self._refuse(scope, receive, send)
            return
        came = 0
        begun = False

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > self._most:
                raise _BodyTooLarge
            return message

        async def watched(message: Message) -> None:
            nonlocal begun
            # The framework takes the exception for a body that it cannot read.
            if came > self._most and not begun:
                raise _BodyTooLarge
            begun = True
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except _BodyTooLarge:
            if not begun:
                await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        mib = self._most / (1 << 20)
        error = ProblemError(
            "too-large",
            f"the body has more than {mib:g} MiB",
            hint="send it in several requests, or raise server.max_body_mib",
            headers={"Connection": "close"},
        )
        await problem_response(scope["path"], error)(scope, receive, send)
