"""Slot limits of arrays, derived from held subjobs."""

from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.slot_limits import SlotLimits
from server_adapter.bridge.state import ServerState, StateBuilder
from server_adapter.servers.torque.facts import FACT_PARSERS


class ArrayServer:
    """Sub-jobs by index, each Q, R, H (for the limit), U (held by its user) or C."""

    def __init__(self) -> None:
        self.builder = StateBuilder(FACT_PARSERS)
        self.slices: list[ServerState | None] = []

    def read(self, letters: str) -> ServerState:
        jobs = [DescribedObject(2, "1.srv", {"job_state": "Q"})]
        for index, letter in enumerate(letters):
            values = {"job_state": "H" if letter == "U" else letter, "job_array_id": str(index)}
            values |= {"H": {"Hold_Types": ""}, "U": {"Hold_Types": "u"}}.get(letter, {})
            jobs.append(DescribedObject(2, f"9[{index}].srv", values))
        *self.slices, state = self.builder.build(server={}, queues=[], nodes=[], jobs=jobs, slice_length=3)
        assert state is not None
        return state


def limits(state: ServerState) -> set[int | None]:
    return {job.slot_limit for job in state.jobs.values() if job.array}


def test_as_many_as_are_let_go_may_run() -> None:
    server = ArrayServer()
    state = server.read("RQHHH")
    assert limits(state) == {2}
    assert state.jobs["1.srv"].slot_limit is None


def test_the_loop_may_run_while_limits_are_learned() -> None:
    server = ArrayServer()
    server.read("RQHHH")
    assert server.slices == [None] * 3  # two of six jobs, and one of five subjobs with a known limit
    server.read("RQHHH")
    assert server.slices == [None] * 2


def test_an_array_without_held_subjobs_has_no_effective_limit() -> None:
    server = ArrayServer()
    assert limits(server.read("RQQQ")) == {None}
    assert limits(server.read("UQQQ")) == {None}


def test_the_moment_after_an_end_does_not_lower_the_limit_and_nothing_changes() -> None:
    server = ArrayServer()
    first = server.read("RRHHH")
    second = server.read("CRHHH")
    assert limits(first) == limits(second) == {2}
    assert all(second.jobs[name] is first.jobs[name] for name in second.jobs)
    assert limits(server.read("CRRHH")) == {2}
    assert limits(server.read("CCCRR")) == {2}


def test_a_raised_limit_is_noticed() -> None:
    server = ArrayServer()
    server.read("RRHHHH")
    assert limits(server.read("RRQHHH")) == {3}


def test_a_stated_limit_counts_for_ten_minutes_whoever_released_subjobs() -> None:
    server, clock = ArrayServer(), [0.0]
    server.builder.slot_limits = SlotLimits(lambda: clock[0])
    assert limits(server.read("RRHHHH")) == {2}
    assert limits(server.read("RRQQHH")) == {4}  # two were released by hand, and the limit is still 2
    server.builder.slot_limits.state("9[].srv", 2)
    clock[0] = 599.0
    assert limits(server.read("RRQQHH")) == {2}
    clock[0] = 600.0
    assert limits(server.read("RRQQHH")) == {4}


def test_a_stated_limit_of_an_array_without_a_derived_one_is_forgotten() -> None:
    server, clock = ArrayServer(), [0.0]
    server.builder.slot_limits = SlotLimits(lambda: clock[0])
    server.builder.slot_limits.state("9[].srv", 0)
    assert limits(server.read("QQQ")) == {0}
    clock[0] = 600.0
    assert limits(server.read("QQQ")) == {None}


def test_an_array_that_is_gone_is_forgotten() -> None:
    server = ArrayServer()
    server.read("RRHH")
    server.read("CCCC")
    assert limits(server.read("RQQQ")) == {None}
