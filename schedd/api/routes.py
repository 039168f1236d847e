"""Tables of endpoints: what a module serves, added to an application as FastAPI's routes."""

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import getdoc, iscoroutinefunction, signature
from typing import Any, Final, NamedTuple, TypeVar

from fastapi import APIRouter, FastAPI
from fastapi.params import Depends
from fastapi.routing import APIRoute

from schedd.api.iso_times import iso_dependency, time_shape
from schedd.api.problems import problem_responses
from schedd.service.access.request_costs import charge_cpu_time

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


class _Row(NamedTuple):
    methods: Sequence[str]
    path: str
    endpoint: Callable[..., Any]
    options: dict[str, Any]
    iso: bool | None
    """Whether answers have times in ISO 8601 without a request for them; None: never."""

    def dependencies(self) -> Sequence[Depends]:
        """The dependency that declares ``iso``, for answers with times."""
        if self.iso is None:
            return ()
        answer = self.options.get("response_model", signature(self.endpoint).return_annotation)
        return () if time_shape(answer).empty else (iso_dependency(self.iso),)


class _MadeRoutes(NamedTuple):
    """Routes, with the dependencies and responses given for all of them, and the number of rows."""

    rows: int
    dependencies: Sequence[Depends]
    responses: Mapping[int | str, dict[str, Any]]
    routes: Sequence[APIRoute]


def first_sentence(endpoint: Callable[..., Any]) -> str:
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
        are passed to FastAPI's decorator. Answers with times have the query parameter ``iso``, by default
        with the value of the option ``iso`` (False), without it if that is None.
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

    def add(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Sequence[str],
        iso: bool | None = False,
        **options: Any,
    ) -> None:
        """Declare an endpoint; ``options`` are passed to FastAPI's ``add_api_route``."""
        self._rows.append(_Row(methods, path, endpoint, options, iso))

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
        for row in self._rows:
            methods, path, endpoint, options = row[:4]
            router.add_api_route(
                self._prefix + path,
                endpoint if iscoroutinefunction(endpoint) else charge_cpu_time(endpoint),
                methods=list(methods),
                dependencies=[*dependencies, *row.dependencies()],
                route_class_override=self._route_class,
                **{"tags": list(self._tags), "summary": first_sentence(endpoint)}
                | options
                | {"responses": {**responses, **options.get("responses", {})}},
            )
        return [route for route in router.routes if isinstance(route, APIRoute)]
