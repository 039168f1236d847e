"""Tables of endpoints, and the routes that are made of them."""

import time
from inspect import iscoroutinefunction

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.routing import Mount, Route

from schedd.api.cost_metering import COST_KEY, CostMetering
from schedd.api.routes import RouteTable
from schedd.service.access.request_costs import RequestCost


def test_endpoint_work_in_threads_is_charged_to_the_user() -> None:
    routes = RouteTable("/v1")

    @routes.get("/slow")
    def slow() -> str:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        return "done"

    def pay(request: Request) -> None:
        request.scope[COST_KEY].key = "user ann"

    spent: list[RequestCost] = []
    app = FastAPI()
    routes.add_to(app, dependencies=[Depends(pay)])
    app.add_middleware(CostMetering, spend=spent.append)
    assert TestClient(app).get("/v1/slow").json() == "done"
    assert [cost.seconds >= 0.05 for cost in spent] == [True]


def test_every_endpoint_is_listed_and_threaded_endpoints_are_charged(the_app: FastAPI) -> None:
    assert all(isinstance(route, Mount | Route) for route in the_app.routes)
    routes = [route for route in the_app.routes if isinstance(route, APIRoute)]
    threads = [route.endpoint for route in routes if not iscoroutinefunction(route.endpoint)]
    assert len(threads) > 10
    assert all(endpoint.__code__.co_name == "measured" for endpoint in threads)


def test_applications_share_routes_until_their_options_differ() -> None:
    table = RouteTable("/v1")

    @table.get("/a")
    def first() -> str:
        return "a"

    def refuse() -> None:
        raise HTTPException(403)

    apps = [FastAPI() for _ in range(4)]
    for app in apps[:2]:
        table.add_to(app)
    table.add_to(apps[2], dependencies=[Depends(refuse)])
    table.get("/b")(first)
    table.add_to(apps[3])
    answers = [[TestClient(app).get(path).status_code for path in ("/v1/a", "/v1/b")] for app in apps]
    assert answers == [[200, 404], [200, 404], [403, 404], [200, 200]]
    shared = [route for route in apps[0].routes if isinstance(route, APIRoute)]
    assert [route for route in apps[1].routes if isinstance(route, APIRoute)] == shared
    assert [route.dependency_overrides_provider for route in shared] == [None], "it keeps no application"
