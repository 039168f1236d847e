"""Types of resources, from the emulated server's definitions to the plan and back to `exec_vnode`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.dialect import Site, find_dialect
from schedd.dialect.deadline import read_deadline, read_required_probability
from schedd.engine import EngineSettings
from schedd.engine.facts.job_requests import ParsedRequest, RequestReader, planner_node
from schedd.model import Node
from schedd.plan.plan import Plan
from schedd.wire import JobFacts, NodeFacts, ResourceFacts, ResourceTypes, Run, ShareFacts
from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import ManageRequest
from server_adapter.batch.sockets import Address
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.state import ServerState
from server_adapter.dis import Attribute
from server_adapter.emulator import EmulatedOpenPBS, NodeSpec
from server_adapter.families import connector
from server_adapter.openpbs import OpenPBSAnyPort, OpenPBSConnection, open_connection
from server_adapter.servers.openpbs.exec_vnodes import exec_vnode
from server_adapter.servers.openpbs.facts import job_facts, node_facts
from server_adapter.settings import load_settings
from tests.server_adapter.openpbs.site import Site as ScriptedSite

# -- a request against a node, by the documented comparison ------------------------------------------------

KINDS: Final = ("long", "size", "float", "boolean", "string", "string_array")
ODD: Final = (
    *(
        "0",
        "1",
        "2",
        "12",
        "007",
        "-1",
        "+3",
        "8.10",
        "8.1",
        "12.4",
        ".5",
        "0.5",
        "1e2",
        "99999999999999999999",
    ),
    *("1kb", "1024", "2kb", "10gb", "10GB", "10240mb", "1w", "5g", "100b", "3m"),
    *("true", "True", "TRUE", "false", "False", "t", "f", "y", "n", "T", "0x10", "1_000", "½", "١", "1 2"),
    *(
        "linux",
        "Linux",
        "a-b",
        "a_b",
        "v1.2.3",
        "2024-01-01",
        "12:30",
        "x=y",
        "red",
        "RED",
        "inf",
        "nan",
        "1e999",
    ),
)
_SIZE_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


def long_resource(text: str) -> int | None:
    digits = text.removeprefix("-") if text[:1] == "-" else text.removeprefix("+")
    return int(text) if digits.isascii() and digits.isdigit() else None


def encode_text(text: str) -> int | None:
    lower = text.lower()
    word = 8 if lower.endswith("w") else 1
    lower = lower.removesuffix("b") if lower.endswith("b") else lower.removesuffix("w")
    unit = lower[-1:] if lower[-1:] in _SIZE_UNITS and lower[-1:] else ""
    number = lower.removesuffix(unit) if unit else lower
    return word * (int(number) << _SIZE_UNITS[unit]) if number.isascii() and number.isdigit() else None


def float_resource(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and text.isascii() and "_" not in text else None


def boolean_resource(text: str) -> bool | None:
    return (
        True
        if text.lower() in ["true", "t", "y", "1"]
        else False
        if text.lower() in ["false", "f", "n", "0"]
        else None
    )


def readable(kind: str, text: str) -> bool:
    read = {
        "long": long_resource,
        "size": encode_text,
        "float": float_resource,
        "boolean": boolean_resource,
    }.get(kind)
    return read is None or read(text) is not None


def fits(kind: str, asked: str, offered: str | None) -> bool:
    """Return whether a node with this value, or without any, meets the chunk's request."""
    match kind:
        case "long":
            return (long_resource(asked) or 0) <= max(0, long_resource(offered) or 0 if offered else 0)
        case "size":
            kib = -(-(encode_text(asked) or 0) // 1024)
            return kib <= -(-(encode_text(offered) or 0 if offered else 0) // 1024)
        case "float":
            return (float_resource(asked) or 0) <= max(
                Decimal(0), float_resource(offered) or Decimal(0) if offered else Decimal(0)
            )
        case "boolean":
            return boolean_resource(asked) == (boolean_resource(offered) if offered else False)
        case _:
            return offered is not None and asked in [one.strip() for one in offered.split(",")]


def asks_nothing(kind: str, asked: str) -> bool:
    number = {"long": long_resource, "size": encode_text, "float": float_resource}.get(kind)
    return number is not None and (number(asked) or 0) <= 0


def read(types: ResourceTypes, name: str, asked: str, node: NodeFacts) -> ParsedRequest:
    job = job_facts("1.s", {"job_state": "Q", "schedselect": f'1:ncpus=1:{name}="{asked}"'}, types)
    intake = RequestReader(EngineSettings())
    intake.set_types(types)
    intake.set_nodes({node.name: planner_node(node)})
    return intake.read(job, None, {})


@given(
    st.sampled_from(KINDS),
    st.sampled_from(["h", "hn", "hnq"]),
    st.sampled_from(["thing", "Thing", "THING"]),
    st.sampled_from(ODD),
    st.none() | st.sampled_from(ODD) | st.lists(st.sampled_from(ODD), min_size=2, max_size=3).map(",".join),
)
def test_a_request_fits_a_node_as_documented_by_the_server(
    kind: str, flags: str, name: str, asked: str, offered: str | None
) -> None:
    if offered is not None and not readable(kind, offered):
        offered = None  # the server refuses such a value, so that none is set
    if offered is not None and kind == "boolean":
        offered = str(boolean_resource(offered))  # as the server writes it
    types = ResourceTypes({"Thing": ResourceFacts(kind, flags)})
    values = {"state": "free", "resources_available.ncpus": "4", "resources_available.host": "n1"}
    if offered is not None:
        values["resources_available.Thing"] = offered
    node = node_facts("n1", values, types=types)
    understood = read(types, name, asked, node)
    if not readable(kind, asked):
        assert understood.request is None
        return
    expected = asks_nothing(kind, asked) or fits(kind, asked, offered)
    if understood.request is None:  # more than can be counted
        assert "too large" in understood.problem
        assert not expected or kind == "float"
        return
    assert understood.request.notes == ()
    never = Plan([planner_node(node)], 0).find_unmet_requirement(understood.request)
    assert (never is None) == expected, never
    used_up = kind in ("long", "size", "float") and "n" in flags and not asks_nothing(kind, asked)
    assert bool(understood.request.chunks[0].resources) == used_up


def test_a_number_without_the_flag_n_is_compared_and_not_used_up() -> None:
    types = ResourceTypes({"speed": ResourceFacts("long", "h"), "gen": ResourceFacts("long", "h")})
    values = {"state": "free", "resources_available.ncpus": "4", "resources_available.speed": "7"}
    node = node_facts("n1", values, types=types)
    assert (node.resources, node.properties) == ({}, ("speed=7",))
    [share] = [ShareFacts("n1", 2)]
    where = exec_vnode(
        "2:ncpus=1:speed=7", [share], tags={"n1": node.properties}, types=types, free={"n1": {}}
    )
    assert where == "(n1:ncpus=1)+(n1:ncpus=1)"
    tags = {"n1": ["speed=3"], "n2": ["speed=12"]}
    shares = [ShareFacts("n1", 1), ShareFacts("n2", 1)]
    where = exec_vnode("1:ncpus=1:speed=5+1:ncpus=1", shares, tags=tags, types=types)
    assert where == "(n2:ncpus=1)+(n1:ncpus=1)"


def nodes_with(kind: str, values: Sequence[str]) -> list[Node]:
    types = ResourceTypes({"rack": ResourceFacts(kind, "h")})
    return [
        planner_node(
            node_facts(
                f"n{number}",
                {"state": "free", "resources_available.ncpus": "4", "resources_available.rack": value},
                types=types,
            )
        )
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize("values", [("1", "2"), ("8.1", "8.10"), ("true", "false"), ("1kb", "1024")])
def test_a_placement_set_has_a_single_value_of_a_string_in_any_form(values: tuple[str, str]) -> None:
    nodes = nodes_with("string", [values[0], values[0], values[1], values[1]])
    types = ResourceTypes({"rack": ResourceFacts("string", "h")})
    resources = {"select": "2:ncpus=4", "place": "scatter:group=RACK"}
    request = find_dialect("openpbs").read(
        JobFacts(id="1.s", owner="ann", queue="workq", submitted=0, family="openpbs", resources=resources),
        Site(defaults={}, types=types),
    )
    assert request.together is not None
    sets = Plan(nodes, 0).shapes.sets_in(request.together)
    assert sorted(sets) == sorted({f"rack={value}" for value in values})


def test_the_exec_vnode_has_the_servers_names_and_charges_amounts_alone() -> None:
    types = ResourceTypes(
        {
            "Scratch": ResourceFacts("size", "hn"),
            "load": ResourceFacts("float", "hn"),
            "rack": ResourceFacts("string", "h"),
            "lic": ResourceFacts("long", "hn"),
        }
    )
    select = "1:NCPUS=2:Mem=1GB:scratch=1gb:LOAD=0.5:Rack=12:Lic=3"
    where = exec_vnode(
        select,
        [ShareFacts("n1", 2, 1 << 20)],
        {"Scratch", "load", "lic"},
        tags={"n1": ["rack=12"]},
        types=types,
    )
    assert where == "(n1:ncpus=2:mem=1048576kb:Scratch=1048576kb:load=0.5:lic=3)"


def test_a_unit_runs_on_the_vnode_with_its_string_even_if_it_resembles_a_boolean() -> None:
    types = ResourceTypes({"flavour": ResourceFacts("string", "h")})
    where = exec_vnode(
        "1:ncpus=1:flavour=true+1:ncpus=1:flavour=True",
        [ShareFacts("n1", 1), ShareFacts("n2", 1)],
        tags={"n1": ["flavour=True"], "n2": ["flavour=true"]},
        types=types,
    )
    assert where == "(n2:ncpus=1)+(n1:ncpus=1)"


@pytest.mark.anyio
async def test_a_server_without_types_is_read_by_the_form_of_values_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scripted = ScriptedSite(refuse={RequestCode.STATUS_RESOURCE: 15000})
    scripted.nodes["n1"] |= {"resources_available.rack": "12", "resources_available.os": "linux"}
    async with scripted.peer.listening():
        adapter = scripted.make_server(tmp_path)
        states = [await adapter.read() for _ in range(2)]
        scripted.refuse.clear()
        scripted.resources["rack"] = {"type": "string", "flag": "h"}
        states.append(await adapter.read())
        await adapter.close()
    assert [dict(state.server.resources) for state in states[:2]] == [{}, {}]
    assert states[1].nodes["n1"].resources == {"rack": 12}
    assert states[2].nodes["n1"].resources == {}
    assert "rack=12" in states[2].nodes["n1"].properties
    told = [one.message for one in caplog.records if "types of resources" in one.message]
    assert len(told) == 1


# -- through the emulated server ---------------------------------------------------------------------------


async def manage(
    root: OpenPBSConnection, kind: int, name: str, *changes: Attribute, command: int = ManagerCommand.SET
) -> None:
    await root.request(
        ManageRequest(
            code=RequestCode.MANAGER, command=command, object_type=kind, name=name, attributes=changes
        )
    )


@asynccontextmanager
async def site(
    mode: str, directory: Path
) -> AsyncIterator[tuple[EmulatedOpenPBS, OpenPBSConnection, object]]:
    nodes = [NodeSpec(f"n{number}", 4, memory=8 << 20) for number in (1, 2, 3)]
    async with EmulatedOpenPBS(nodes, time_scale=0) as server:
        server.cluster.attributes["scheduling"] = "True"
        host, port = server.address
        settings = {
            "server.family": "openpbs",
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "mode": mode,
            "state_dir": directory,
        }
        adapter = connector(load_settings(None, settings))(AdaptiveRateLimiter(200))
        try:
            async with await open_connection(Address(host, port), OpenPBSAnyPort(), user="root") as root:
                for name, kind in (
                    ("rack", "string"),
                    ("OS", "string"),
                    ("Scratch", "size"),
                    ("gold", "boolean"),
                ):
                    await manage(
                        root,
                        ObjectType.RESOURCE,
                        name,
                        Attribute("type", kind),
                        Attribute("flag", "hn" if kind == "size" else "h"),
                        command=ManagerCommand.CREATE,
                    )
                yield server, root, adapter
        finally:
            await adapter.close()


@pytest.mark.anyio
async def test_types_and_flags_are_read_from_the_server(tmp_path: Path) -> None:
    async with site("adviser", tmp_path) as (server, root, adapter):
        await manage(root, ObjectType.NODE, "n1", Attribute("resources_available", "12", "rack"))
        await manage(root, ObjectType.NODE, "n1", Attribute("resources_available", "8.10", "os"))
        await manage(root, ObjectType.NODE, "n1", Attribute("resources_available", "20gb", "scratch"))
        await manage(root, ObjectType.NODE, "n1", Attribute("resources_available", "t", "gold"))
        job = server.submit(resources={"select": "1:NCPUS=2:Mem=1GB:RACK=12:SCRATCH=1gb"})
        state: ServerState = await adapter.read()  # type: ignore[attr-defined]
        assert state.server.resources["Scratch"] == ResourceFacts("size", "hn")
        assert state.server.resources["ncpus"].type == "long"
        node = state.nodes["n1"]
        assert {"rack=12", "os=8.10", "gold=True"} <= set(node.properties)
        assert node.resources == {"Scratch": 20 << 20}
        assert state.jobs[job].resources["schedselect"] == "1:ncpus=2:mem=1GB:rack=12:Scratch=1gb"
        before = state.server
        await manage(
            root,
            ObjectType.RESOURCE,
            "racks",
            Attribute("type", "long"),
            Attribute("flag", "h"),
            command=ManagerCommand.CREATE,
        )
        again: ServerState = await adapter.read()  # type: ignore[attr-defined]
        assert again.server != before
        assert again.server.resources["racks"] == ResourceFacts("long", "h")


@pytest.mark.anyio
@pytest.mark.parametrize("deadline", ["+6:00:00@95%", "1800000000@99.5%", "2027-01-15T08:00Z@5%", "+6:00:00"])
async def test_a_deadline_with_a_probability_reaches_the_planner(tmp_path: Path, deadline: str) -> None:
    async with site("adviser", tmp_path) as (server, root, adapter):
        resources = {"select": "1:ncpus=2", "walltime": "01:00:00", "deadline": deadline}
        with pytest.raises(Exception, match="Unknown resource"):
            server.submit(resources=resources)
        await manage(
            root,
            ObjectType.RESOURCE,
            "deadline",
            Attribute("type", "string"),
            command=ManagerCommand.CREATE,
        )
        job = server.submit(resources=resources)
        state: ServerState = await adapter.read()  # type: ignore[attr-defined]
        facts = state.jobs[job]
        assert facts.resources["deadline"] == deadline
        due, _, percent = deadline.partition("@")
        expected = facts.submitted + 6 * 3_600 if due.startswith("+") else 1_800_000_000
        assert read_deadline(facts.resources, facts.submitted) == expected
        required = read_required_probability(facts.resources)
        assert required == (pytest.approx(float(percent[:-1]) / 100) if percent else None)


@pytest.mark.anyio
async def test_the_emulated_server_enforces_types(tmp_path: Path) -> None:
    async with site("adviser", tmp_path) as (server, root, _):
        for name, value in (("scratch", "much"), ("gold", "maybe"), ("ncpus", "two")):
            with pytest.raises(ServerRefusedError) as refused:
                await manage(root, ObjectType.NODE, "n1", Attribute("resources_available", value, name))
            assert refused.value.code == 15014
        for group in ("scratch", "ncpus"):
            with pytest.raises(Exception, match="not of type string"):
                server.submit(resources={"select": "2:ncpus=1", "place": f"scatter:group={group}"})
        server.submit(resources={"select": "2:ncpus=1", "place": "scatter:group=RACK"})
        for select in ("1:scratch=much", "1:gold=maybe", "1:NCPUS=two", "1:ncpus=1:gold=12"):
            with pytest.raises(Exception, match="Illegal attribute or resource value"):
                server.submit(resources={"select": select})


@pytest.mark.anyio
async def test_a_job_with_names_in_capitals_is_run_and_charged(tmp_path: Path) -> None:
    async with site("scheduler", tmp_path) as (server, root, adapter):
        await manage(root, ObjectType.NODE, "n2", Attribute("resources_available", "20gb", "scratch"))
        await manage(root, ObjectType.NODE, "n2", Attribute("resources_available", "12", "rack"))
        job = server.submit(resources={"select": "1:NCPUS=2:Mem=1GB:RACK=12:SCRATCH=1gb"})
        await adapter.become_scheduler(lambda _: None)  # type: ignore[attr-defined]
        state: ServerState = await adapter.read()  # type: ignore[attr-defined]
        run = Run(
            id="1",
            cause="",
            time=0,
            job_id=job,
            shares=(ShareFacts("n2", 2, 1 << 20),),
            version=state.jobs[job].version,
            expires=1 << 40,
        )
        outcome = await adapter.run(run, lambda: None)  # type: ignore[attr-defined]
        assert outcome.accepted, outcome
        assert server.job(job).attributes["exec_vnode"] == "(n2:ncpus=2:mem=1048576kb:Scratch=1048576kb)"
        assert server.cluster.vnode("n2").assigned()["ncpus"] == 2
