"""Tables of endpoints: what a module serves, added to an application as FastAPI's routes."""

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import getdoc, iscoroutinefunction
from typing import Any, Final, NamedTuple, TypeVar

from fastapi import APIRouter, FastAPI
from fastapi.params import Depends
from fastapi.routing import APIRoute

from schedd.api.problems import problem_responses
from schedd.service.access.request_costs import charge_cpu_time

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


class _Row(NamedTuple):
    methods: Sequence[str]
    path: str
    endpoint: Callable[..., Any]
    options: dict[str, Any]


class _MadeRoutes(NamedTuple):
    """Routes, with the dependencies and responses given for all of them, and the number of rows."""

    rows: int
    dependencies: Sequence[Depends]
    responses: Mapping[int | str, dict[str, Any]]
    routes: Sequence[APIRoute]


def summary_of(endpoint: Callable[..., Any]) -> str:
    """Return the first sentence of an endpoint's docstring, up to a colon, for lists of operations."""
    text = " ".join((getdoc(endpoint) or "").split())
    return re.split(r"(?<=[^.])[.:;](?: |$)", text, maxsplit=1)[0]


class RouteTable:
    """The endpoints of one module, declared with the decorators of FastAPI's ``APIRouter``.

    FastAPI's router makes a route twice: where it is declared, and again for the application that includes
    it when the first request comes. Here ``add_to`` makes it once, for all applications of the process: the
    routes of the daemon take 0.4 s of processor time. They refer to no application.
    """

    def __init__(
        self, prefix: str = "", tags: Sequence[str] = (), route_class: type[APIRoute] = APIRoute
    ) -> None:
        self._prefix: Final = prefix
        self._tags: Final = tuple(tags)
        self._route_class: Final = route_class
        self._rows: Final[list[_Row]] = []
        self._made: _MadeRoutes | None = None

    def get(
        self, path: str, *problems: str, answer: Any = None, **options: Any
    ) -> Callable[[_Endpoint], _Endpoint]:
        """Declare the endpoint of GET, with the kinds of its problems and the type of its answer; ``options``
        are passed to FastAPI's decorator.
        """
        return self._on("GET", path, problems, answer, options)

    def put(
        self, path: str, *problems: str, answer: Any = None, **options: Any
    ) -> Callable[[_Endpoint], _Endpoint]:
        return self._on("PUT", path, problems, answer, options)

    def post(
        self, path: str, *problems: str, answer: Any = None, **options: Any
    ) -> Callable[[_Endpoint], _Endpoint]:
        return self._on("POST", path, problems, answer, options)

    def delete(
        self, path: str, *problems: str, answer: Any = None, **options: Any
    ) -> Callable[[_Endpoint], _Endpoint]:
        return self._on("DELETE", path, problems, answer, options)

    def _on(
        self, method: str, path: str, problems: Sequence[str], answer: Any, options: dict[str, Any]
    ) -> Callable[[_Endpoint], _Endpoint]:
        responses = problem_responses(*problems) | options.pop("responses", {})
        if answer is not None:
            options["response_model"] = answer

        def declare(endpoint: _Endpoint) -> _Endpoint:
            self.add(path, endpoint, methods=[method], responses=responses, **options)
            return endpoint

        return declare

    def add(self, path: str, endpoint: Callable[..., Any], *, methods: Sequence[str], **options: Any) -> None:
        """Declare an endpoint; ``options`` are passed to FastAPI's ``add_api_route``."""
        self._rows.append(_Row(methods, path, endpoint, options))

    def add_to(
        self,
        app: FastAPI,
        dependencies: Sequence[Depends] = (),
        responses: Mapping[int | str, dict[str, Any]] | None = None,
    ) -> None:
        """Add the routes. All have the ``dependencies``, and the ``responses`` in addition to their own.

        The processor time of endpoints that run in a thread is charged to their request.
        """
        wanted = (len(self._rows), list(dependencies), dict(responses or {}))
        if self._made is None or self._made[:3] != wanted:
            self._made = _MadeRoutes(*wanted, self._make_routes(wanted[1], wanted[2]))
        app.router.routes.extend(self._made.routes)

    def _make_routes(
        self, dependencies: Sequence[Depends], responses: Mapping[int | str, dict[str, Any]]
    ) -> Sequence[APIRoute]:
        router = APIRouter()
        for methods, path, endpoint, options in self._rows:
            router.add_api_route(
                self._prefix + path,
                endpoint if iscoroutinefunction(endpoint) else charge_cpu_time(endpoint),
                methods=list(methods),
                dependencies=dependencies,
                route_class_override=self._route_class,
                **{"tags": list(self._tags), "summary": summary_of(endpoint)}
                | options
                | {"responses": {**responses, **options.get("responses", {})}},
            )
        return [route for route in router.routes if isinstance(route, APIRoute)]
