"""What the shell offers after an option: the names that the cluster knows. The completion script calls it."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from schedd.cli.user.formatting import natural_key
from schedd.client import Client, ClientError, find_endpoint

_TIMEOUT_S: Final = 2.0
_MAX_NAMES: Final = 2_000

VALUE_KINDS: Final[dict[str, Callable[[Client], Iterable[str]]]] = {
    "cluster": lambda client: (one.name for one in client.clusters()),
    "job": lambda client: (one.id for one in client.jobs(fields=("id",))),
    "node": lambda client: (one.name for one in client.nodes()),
    "queue": lambda client: {one.queue for one in client.jobs(fields=("queue",))},
    "held-node": lambda client: (one.name for one in client.holds() if one.kind == "node"),
    "held-queue": lambda client: (one.name for one in client.holds() if one.kind == "queue"),
    "reservation": lambda client: (one.name for one in client.reservations()),
    "user": lambda client: {one.owner.partition("@")[0] for one in client.jobs(fields=("owner",))},
}
"""Request for each kind of name."""


def run(argv: Sequence[str]) -> int:
    """Print the names of the kind that is named, one a line, 2,000 at most; nothing where none can be had."""
    kind = VALUE_KINDS.get(argv[0]) if argv else None
    if kind is None:
        return 2
    try:
        with Client(find_endpoint(), timeout=_TIMEOUT_S) as client:
            names = sorted(islice(kind(client), _MAX_NAMES), key=natural_key)
    except ClientError:
        return 1  # completion shows no errors
    print("\n".join(names))
    return 0
