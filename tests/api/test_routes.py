"""Tables of endpoints, and the routes that are made of them."""

import time
from inspect import iscoroutinefunction

from fastapi import Depends, FastAPI, Request
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
