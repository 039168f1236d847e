"""Requests of the federation's client: names as segments of paths."""

from collections.abc import Callable
from typing import Any

import pytest

from schedd.client import Endpoint
from schedd.federation.client import FederationClient

CALLS: dict[str, Callable[[FederationClient, str], object]] = {
    "GET jobs": lambda client, name: client.job(name),
    "DELETE jobs": lambda client, name: client.cancel(name),
    "GET coallocations": lambda client, name: client.coallocation(name),
    "DELETE coallocations": lambda client, name: client.cancel_coallocation(name),
    "POST coallocations": lambda client, name: client.edit_component(name, {}),
    "GET bags": lambda client, name: client.bag(name),
    "DELETE bags": lambda client, name: client.cancel_bag(name),
    "GET bookings": lambda client, name: client.booking(name),
    "DELETE bookings": lambda client, name: client.cancel_booking(name),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_name_stays_one_segment_of_the_path(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []

    def request(_http: object, method: str, path: str, *_: object, **__: object) -> dict[str, Any]:
        paths.append((method, path))
        return {}

    monkeypatch.setattr("schedd.client.http.HttpConnection.request", request)
    with FederationClient(Endpoint("http://127.0.0.1:1")) as client:
        CALLS[call](client, "1[2]?state=/../7#")
    ((method, path),) = paths
    expected_method, kind = call.split()
    assert method == expected_method
    assert path.startswith(f"/v1/federation/{kind}/1%5B2%5D%3Fstate%3D%2F..%2F7%23")
