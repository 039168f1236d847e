"""A typed client of the daemon's HTTP API, with the standard library only.

    from schedd.client import Client

    with Client.from_environment() as client:
        job = client.job("123")
        print(job.planned_start, job.why)

Responses are the API's JSON objects; type checkers see them as the API's classes (``schedd.client.answers``).
Times are whole seconds since the epoch (UTC), memory is KiB. At run time it imports nothing else of schedd.
"""

from schedd.client.client import Client
from schedd.client.endpoint import ConfigError, Endpoint, find_endpoint
from schedd.client.errors import ClientError, Refused, Unreachable
from schedd.client.read_client import State

__all__ = [
    "Client",
    "ClientError",
    "ConfigError",
    "Endpoint",
    "Refused",
    "State",
    "Unreachable",
    "find_endpoint",
]
