"""Power commands of the site: real processes that record their arguments."""

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schedd.wire import JobFacts, ShareFacts, Switch, Switched
from server_adapter.bridge.power_switcher import PowerSwitcher
from server_adapter.bridge.run_checks import describe_old_term
from server_adapter.bridge.state import EMPTY_STATE, ServerState
from server_adapter.settings import PowerCommandSettings

NOW = 1_700_000_000


class SwitcherHarness:
    """The part of the adapter that switches, with commands that note their arguments in a file."""

    def __init__(self, directory: Path, *, on: str = "", off: str = "", **settings: Any) -> None:
        self.noted = directory / "noted"
        self.told: list[Switched] = []
        self.barred = ""
        self.term = 1
        self.state: ServerState = EMPTY_STATE
        self.read = 0
        self.now, self.reading_s = NOW, 0
        names = (f"e:{number}" for number in count(1))
        delivery: Any = SimpleNamespace(ids=names, enqueue=self._record)
        script = f'echo "$0 $*" >> "{self.noted}"; '
        command = settings.pop("command", None)
        chosen: dict[str, Any] = {
            "on": ("sh", "-c", script + on, "on"),
            "off": ("sh", "-c", script + off, "off"),
            **settings,
        }
        if command is not None:
            chosen |= {"on": command, "off": command}
        self.switches = PowerSwitcher(
            PowerCommandSettings(**chosen),
            delivery,
            lambda: self.barred,
            self._fresh,
            lambda: self.term,
            lambda: self.now,
        )

    async def _record(self, event: Switched) -> None:
        self.told.append(event)

    async def _fresh(self) -> ServerState:
        self.read += 1
        self.now += self.reading_s
        return self.state

    def do(self, *decisions: Switch) -> list[Switched]:
        self.told = []
        for one in decisions:
            self.switches.enqueue(one)
        asyncio.run(self.switches.finish())
        return self.told

    @property
    def ran(self) -> list[str]:
        return self.noted.read_text().splitlines() if self.noted.exists() else []


def switch(number: int, node: str, on: bool, **more: Any) -> Switch:
    given: dict[str, Any] = {"expires": NOW + 60, "term": 1, **more}
    return Switch(id=f"d{number:012d}", cause="e", time=NOW, node=node, on=on, **given)


def test_nodes_with_the_same_target_share_a_command_and_each_is_reported(tmp_path: Path) -> None:
    house = SwitcherHarness(tmp_path, on="echo they boot")
    told = house.do(switch(1, "n1", True), switch(2, "n2", False), switch(3, "n3", True))
    assert house.ran == ["on n1 n3", "off n2"]
    assert sorted((one.node, one.on, one.done, one.code, one.text) for one in told) == [
        ("n1", True, True, 0, "they boot"),
        ("n2", False, True, 0, ""),
        ("n3", True, True, 0, "they boot"),
    ]
    assert {one.decision_id for one in told} == {f"d{n:012d}" for n in (1, 2, 3)}


def test_a_repeated_decision_is_not_executed_again(tmp_path: Path) -> None:
    house = SwitcherHarness(tmp_path)
    house.do(switch(1, "n1", False))
    (told,) = house.do(switch(1, "n1", False))
    assert (told.done, house.ran) == (True, ["off n1"])


def test_a_decision_that_expires_while_the_server_does_not_answer_switches_no_node_off(
    tmp_path: Path,
) -> None:
    house = SwitcherHarness(tmp_path)
    house.reading_s = 600
    (told,) = house.do(switch(1, "n1", False))
    assert (told.done, told.text, house.ran) == (False, "the decision expired 540 s ago", [])


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("echo no such board >&2; exit 7", 7, "no such board"),
        ("exit 3", 3, "sh ended with 3"),
        ("printf 'a\\033[31mb'; exit 1", 1, "a [31mb"),
    ],
)
def test_a_failed_command_is_reported_with_status_and_output(
    tmp_path: Path, script: str, code: int, said: str
) -> None:
    (told,) = SwitcherHarness(tmp_path, off=script).do(switch(1, "n1", False))
    assert (told.done, told.code, told.text) == (False, code, said)


def test_a_command_beyond_its_timeout_is_killed_with_its_children(tmp_path: Path) -> None:
    house = SwitcherHarness(tmp_path, off=f"(sleep 30; echo late >> {tmp_path}/noted) & wait", timeout=0.3)
    (told,) = house.do(switch(1, "n1", False))
    assert (told.done, told.code, told.text) == (False, -1, "sh did not end within 0.3 s")
    assert house.ran == ["off n1"]


def test_a_missing_command_is_reported(tmp_path: Path) -> None:
    house = SwitcherHarness(tmp_path, command=("/no/such",))
    (told,) = house.do(switch(1, "n1", True))
    assert (told.done, told.code, told.text) == (False, -1, "/no/such: No such file or directory")


@pytest.mark.parametrize(
    ("decision", "barred", "said"),
    [
        (switch(1, "n1", True), "the adapter is in shadow mode", "the adapter is in shadow mode"),
        (switch(1, "n1", True, term=0), "", describe_old_term(0, 1)),
        (switch(1, "n1", True, expires=NOW - 5), "", "the decision expired 5 s ago"),
        (switch(1, "-f", True), "", "its name could be taken for an option"),
    ],
)
def test_forbidden_decisions_are_refused(tmp_path: Path, decision: Switch, barred: str, said: str) -> None:
    house = SwitcherHarness(tmp_path)
    house.barred = barred
    (told,) = house.do(decision)
    assert (told.done, told.code, told.text, house.ran) == (False, -1, said, [])


def test_missing_commands_are_reported_with_the_setting(tmp_path: Path) -> None:
    house = SwitcherHarness(tmp_path, command=())
    (told,) = house.do(switch(1, "n1", False))
    assert told.text == "the adapter's settings have no commands to switch nodes: [power] on and off"


def test_a_node_with_a_job_is_not_switched_off(tmp_path: Path) -> None:
    house = SwitcherHarness(tmp_path)
    jobs: Sequence[JobFacts] = [
        JobFacts(id="7.s", owner="a", queue="q", submitted=1, state="R", shares=(ShareFacts("n1", 1),)),
        JobFacts(id="8.s", owner="a", queue="q", submitted=1, state="Q"),
    ]
    house.state = ServerState(jobs={job.id: job for job in jobs})
    told = {one.node: one for one in house.do(switch(1, "n1", False), switch(2, "n2", False))}
    assert (told["n1"].done, told["n1"].text) == (False, "job 7.s is on it")
    assert told["n2"].done
    assert house.ran == ["off n2"]
    assert house.read == 1


def test_a_command_gets_at_most_the_set_number_of_nodes(tmp_path: Path) -> None:
    house = SwitcherHarness(tmp_path, at_once=2)
    house.do(*(switch(i, f"n{i}", True) for i in range(1, 6)))
    assert house.ran == ["on n1 n2", "on n3 n4", "on n5"]
