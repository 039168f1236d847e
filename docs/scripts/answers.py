"""Write schedd/client/answers: the API's answers as typed dictionaries, from the API's description.

The API's types are dataclasses and need pydantic; the client uses only the standard library. ``make docs``
writes them, and a test compares them with the API.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from schedd.api.app import create_app
from schedd.api.federation import create_app as create_federation_app
from schedd.api.federation_daemon import FEDERATION_ROUTES
from schedd.api.views import PlanUpdate
from schedd.service.access.callers import Callers
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.clock import SystemClock
from schedd.service.clusters import Clusters

ROOMS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "jobs": (
        "Jobs: state, explanation, history, and changes of the plan.",
        (
            "JobView",
            "JobPage",
            "JobColumns",
            "StartHistory",
            "Explanation",
            "RunTimeView",
            "ArrayView",
            "PlanUpdate",
            "JobCounts",
        ),
    ),
    "plan": (
        "Nodes, the plan over time, what is free, when a job would start.",
        ("NodePage", "PartitionsView", "PlanPage", "GapsView", "WhatIfResult", "ReservationsView"),
    ),
    "accounts": ("Accounts: budgets, charges, reports.", ("AccountsView", "LedgerView", "AccountReport")),
    "admin": (
        "Clusters and administration: reservations, holds, policies, searches, objectives.",
        (
            *("ClustersView", "AlertsView", "DispatchState", "ReservationResult", "PreviewView", "HoldsView"),
            *("PolicyView", "PolicyPreview", "EvaluationView", "EvaluationSample", "ObjectivesView"),
            *("JobCostView", "SearchResult", "SearchesView"),
        ),
    ),
    "bookings": (
        "Bookings: cores reserved by users for a time.",
        ("BookingsView", "BookingView", "BookingResult", "BookingOrdersView"),
    ),
    "alternatives": (
        "Alternative plans.",
        ("AlternativesView", "AlternativeSet", "AppliedPlan", "SearchStopped"),
    ),
    "transfers": (
        "Jobs transferred by a federation, and leased licences.",
        ("TransfersView", "TransferResult", "LicenceLeaseView"),
    ),
    "notices": ("Notices: mail or commands that users asked for.", ("NoticesView",)),
    "power": ("Power saving: nodes switched off and on.", ("PowerView",)),
    "quality": (
        "Accuracy of start estimates; users, priorities, fair shares, licences.",
        (
            "AccuracyView",
            "UsersView",
            "PriorityView",
            "FairShareView",
            "FairShareHistory",
            "LicencesView",
            "ClusterReports",
        ),
    ),
    "federation": (
        "Federation: jobs, co-allocations, bags, bookings, clusters and reports.",
        (
            *("FederatedJobsView", "FederatedWhatIfResult", "CoAllocationsView", "BagsView", "BagOfferView"),
            *("FederatedBookingsView", "FederatedClustersView", "FederatedLicencesView", "FederationReport"),
            *("BalanceView", "FederationHealth", "FederationReadiness"),
        ),
    ),
}
"""By module: its subject and its answers; types of fields are in the module of their first use."""

_WIDTH: Final = 110
_PLAIN: Final = {"string": "str", "integer": "int", "boolean": "bool", "number": "float", "null": "None"}
_NOTE: Final = "Written by ``make docs`` from the API's description, which says what each field means."


def modules() -> dict[str, str]:
    """The text of each module of the package, by its file's name."""
    known = _schemas()
    rooms: dict[str, list[str]] = {}
    placed: dict[str, str] = {}
    for room, (_, roots) in ROOMS.items():
        rooms[room] = []
        for root in roots:
            _place(root, room, known, placed, rooms[room])
    texts = {f"{room}.py": _module(room, names, known, placed) for room, names in rooms.items()}
    texts["__init__.py"] = _face({room: sorted(names) for room, names in rooms.items()})
    return texts


def write_modules(folder: Path) -> None:
    """Write them into ``folder``."""
    for name, text in modules().items():
        (folder / name).write_text(text, "utf-8")


def _schemas() -> dict[str, Any]:
    """Return the JSON schemas of the API, by name."""
    app = create_app(Clusters({}, SystemClock()), Callers(Tokens([], None)))
    found: dict[str, Any] = dict(app.openapi()["components"]["schemas"])
    news = TypeAdapter(PlanUpdate).json_schema(ref_template="#/components/schemas/{model}")
    found.update(news.pop("$defs"))
    found["PlanUpdate"] = news
    federation = create_federation_app(Tokens([], None))
    for add_routes in FEDERATION_ROUTES:
        add_routes(federation)
    own: dict[str, Any] = federation.openapi()["components"]["schemas"]
    return own | found


def _place(name: str, room: str, known: dict[str, Any], placed: dict[str, str], names: list[str]) -> None:
    """Append a type after the types of its fields, unless it is placed already."""
    if name in placed or "enum" in known[name]:
        return
    placed[name] = room
    for schema in known[name]["properties"].values():
        for part in _references(schema):
            _place(part, room, known, placed, names)
    names.append(name)


def _references(schema: Any) -> Iterator[str]:
    match schema:
        case {"$ref": str(path)}:
            yield path.rpartition("/")[2]
        case {"anyOf": list(parts)}:
            for part in parts:
                yield from _references(part)
        case {"type": "array", "items": part} | {"type": "object", "additionalProperties": part}:
            yield from _references(part)


def _type(schema: Any, known: dict[str, Any]) -> str:
    """A schema as an annotation."""
    if not isinstance(schema, dict) or not schema.keys() - {"description", "title", "default"}:
        return "Any"
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return "str" if "enum" in known[name] else name  # named enumerations may grow
    if "anyOf" in schema:
        return " | ".join(_type(part, known) for part in schema["anyOf"])
    if "enum" in schema:
        return "Literal[{}]".format(", ".join(f'"{one}"' for one in schema["enum"]))
    if "const" in schema:
        return f'Literal["{schema["const"]}"]'
    if schema["type"] == "array":
        if "prefixItems" in schema:
            return "list[Any]"
        return f"list[{_type(schema['items'], known)}]"
    if schema["type"] == "object":
        return f"dict[str, {_type(schema['additionalProperties'], known)}]"
    return _PLAIN[schema["type"]]


def _module(room: str, names: list[str], known: dict[str, Any], placed: dict[str, str]) -> str:
    body = "".join(f"\n\n{_class(name, known)}" for name in names)
    taken = sorted(word for word in ("Any", "Literal") if f"{word}[" in body or f"{word}]" in body)
    if ": Any\n" in body and "Any" not in taken:
        taken.insert(0, "Any")
    typing = ", ".join([*taken, "TypedDict"])
    lines = [f'"""{ROOMS[room][0]}\n\n{_NOTE}\n"""\n', f"from typing import {typing}\n"]
    outside: dict[str, set[str]] = {}
    for name in names:
        for schema in known[name]["properties"].values():
            for part in _references(schema):
                if "enum" not in known[part] and placed[part] != room:
                    outside.setdefault(placed[part], set()).add(part)
    lines += [
        _listed(f"from schedd.client.answers.{other} import ", sorted(parts), "()")
        for other, parts in sorted(outside.items())
    ]
    if outside:
        lines[-len(outside)] = "\n" + lines[-len(outside)]
        lines[1] = lines[1].rstrip("\n") + "\n"
    return "\n".join([lines[0], "".join(lines[1:]), _all_names(sorted(names))]) + body


def _class(name: str, known: dict[str, Any]) -> str:
    schema = known[name]
    said = str(schema["description"]).splitlines()
    lines = [f"class {name}(TypedDict):"]
    if len(said) == 1:
        lines.append(f'    """{said[0]}"""')
    else:
        lines += [f'    """{said[0]}', *(f"    {line}".rstrip() for line in said[1:]), '    """']
    lines.append("")
    lines += [_field(field, _type(shape, known)) for field, shape in schema["properties"].items()]
    return "\n".join(lines) + "\n"


def _field(name: str, kind: str) -> str:
    line = f"    {name}: {kind}"
    if len(line) <= _WIDTH:
        return line
    if kind.startswith("Literal[") and kind.endswith("]"):
        inside = kind.removeprefix("Literal[").removesuffix("]")
        if len(inside) + 8 <= _WIDTH:
            return f"    {name}: Literal[\n        {inside}\n    ]"
        return "".join(
            [f"    {name}: Literal[\n", *(f"        {one},\n" for one in inside.split(", ")), "    ]"]
        )
    raise ValueError(f"{name} is too long for a line: {kind}")


def _listed(begin: str, names: list[str], brackets: str) -> str:
    names = sorted(names, key=str.lower)
    line = f"{begin}{', '.join(names)}\n"
    if len(line) <= _WIDTH + 1:
        return line
    return f"{begin}{brackets[0]}\n" + "".join(f"    {name},\n" for name in names) + f"{brackets[1]}\n"


def _all_names(names: list[str]) -> str:
    line = "__all__ = [{}]\n".format(", ".join(f'"{name}"' for name in names))
    if len(line) <= _WIDTH + 1:
        return line
    return "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n"


def _face(rooms: Mapping[str, list[str]]) -> str:
    said = f"The API's answers as typed dictionaries; may gain fields (docs/reference/api.md).\n\n{_NOTE}\n"
    head = f'"""{said}"""\n\n'
    imports = [
        _listed(f"from schedd.client.answers.{room} import ", rooms[room], "()") for room in sorted(rooms)
    ]
    everything = _all_names(sorted(name for names in rooms.values() for name in names))
    return "".join([head, *imports, "\n", everything])
