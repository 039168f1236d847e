"""Reservations of a server: reserved nodes, and requests to the scheduler."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from schedd.wire import ShareFacts
from server_adapter.batch.codes import ObjectType
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.state import PendingReservation, ReservationOccurrence, ServerReservation
from server_adapter.openpbs.notation import condensed, unrolled
from server_adapter.servers.openpbs.reservations import (
    SOONEST,
    begins,
    compose_placement,
    outside_queues,
    pending_reservation,
    recurring,
    server_reservations,
)

DAY = 86_400
CONFIRMED = {
    "reserve_state": "2",
    "reserve_substate": "2",
    "reserve_start": "100",
    "reserve_end": "160",
    "reserve_duration": "60",
    "schedselect": "2:ncpus=2+1:ncpus=1",
    "Resource_List.select": "2:ncpus=2+1:ncpus=1",
    "Resource_List.place": "free",
    "resv_nodes": "(n1:ncpus=2)+(n1:ncpus=2)+(n2:ncpus=1)",
    "queue": "R7",
}
ASKED = {"select": "2:ncpus=2+1:ncpus=1", "place": "free", "walltime": "60"}
UNCONFIRMED = {name: value for name, value in CONFIRMED.items() if name != "resv_nodes"} | {
    "reserve_state": "1",
    "reserve_substate": "1",
}
DAILY = {"reserve_rrule": "FREQ=DAILY;COUNT=3", "reserve_count": "3", "reserve_timezone": "UTC"}
STANDING = (
    CONFIRMED
    | DAILY
    | {
        "reserve_index": "1",
        "resv_nodes": "(n1:ncpus=2)+(n1:ncpus=2)+(n2:ncpus=1)",
        "reserve_execvnodes": "3#(n1:ncpus=2)+(n1:ncpus=2)+(n2:ncpus=1){0,2}"
        "(n3:ncpus=2)+(n3:ncpus=2)+(n3:ncpus=1){1}",
    }
)
ALL = {"n1", "n2", "n3"}


def described(**reservations: dict[str, str]) -> list[DescribedObject]:
    return [
        DescribedObject(ObjectType.RESERVATION, f"{name}.s", values) for name, values in reservations.items()
    ]


def test_a_confirmed_reservation_holds_its_vnodes_and_a_pending_one_holds_none() -> None:
    assert server_reservations(described(R7=CONFIRMED)) == {
        "R7.s": ServerReservation(100, 160, ("n1", "n2"), ("R7",))
    }
    assert server_reservations(described(R7=UNCONFIRMED)) == {}
    assert server_reservations(described(R7=CONFIRMED | {"reserve_state": "6"})) == {}
    assert pending_reservation(CONFIRMED, ALL) is None


def test_all_reservations_admit_each_others_jobs_since_vnode_properties_restrict_them() -> None:
    held = server_reservations(described(R7=CONFIRMED, R9=CONFIRMED | {"reserve_substate": "10"}))
    assert [one.queues for one in held.values()] == [("R7", "R9"), ("R7", "R9", "R9:anew")]


def test_a_new_reservation_requests_its_resources_from_its_start() -> None:
    assert pending_reservation(UNCONFIRMED, ALL) == PendingReservation(
        (ReservationOccurrence(100, ASKED, ASKED["select"]),), begin=100
    )


def test_a_reservation_from_a_job_may_begin_at_any_time() -> None:
    found = pending_reservation(UNCONFIRMED | {"reserve_start": str(SOONEST)}, ALL)
    assert found == PendingReservation((ReservationOccurrence(0, ASKED, ASKED["select"]),), begin=None)


def test_a_standing_reservation_requests_vnodes_for_each_occurrence() -> None:
    found = pending_reservation(UNCONFIRMED | DAILY, ALL)
    assert found is not None
    assert found.standing
    assert [slot.start for slot in found.slots] == [100, 100 + DAY, 100 + 2 * DAY]
    assert found.begin == 100


def test_a_rule_follows_the_clock_of_its_time_zone() -> None:
    prague = ZoneInfo("Europe/Prague")
    start = int(datetime(2026, 3, 28, 9, tzinfo=prague).timestamp())
    found = list(recurring("FREQ=DAILY;UNTIL=20260330T120000Z", start, "Europe/Prague"))
    assert [datetime.fromtimestamp(one, prague).isoformat() for one in found] == [
        "2026-03-28T09:00:00+01:00",
        "2026-03-29T09:00:00+02:00",
        "2026-03-30T09:00:00+02:00",
    ]


def test_the_first_occurrence_of_a_rule_may_be_after_the_requested_start() -> None:
    values = UNCONFIRMED | {
        "reserve_rrule": "FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0;COUNT=2",
        "reserve_count": "2",
        "reserve_timezone": "UTC",
    }
    found = pending_reservation(values, ALL)
    assert found is not None
    assert (found.begin, [slot.start for slot in found.slots]) == (9 * 3600, [9 * 3600, 9 * 3600 + DAY])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"reserve_count": "401"}, "401 times are too many"),
        ({"reserve_count": "4"}, "has 3 times, the server counts 4"),
        ({"reserve_timezone": "Middle/Earth"}, "time zone 'Middle/Earth'"),
        ({"reserve_rrule": "FREQ=EVERY"}, "is not understood"),
    ],
)
def test_a_malformed_rule_is_reported_as_a_problem(changed: dict[str, str], words: str) -> None:
    found = pending_reservation(UNCONFIRMED | DAILY | changed, ALL)
    assert found is not None
    assert words in found.problem


def test_a_standing_reservation_holds_the_vnodes_of_each_remaining_occurrence() -> None:
    held = server_reservations(described(R7=STANDING))
    assert {name: (one.start, one.nodes) for name, one in held.items()} == {
        "R7.s": (100, ("n1", "n2")),
        "R7.s#2": (100 + DAY, ("n3",)),
        "R7.s#3": (100 + 2 * DAY, ("n1", "n2")),
    }
    second = STANDING | {
        "reserve_index": "2",
        "reserve_start": str(100 + DAY),
        "reserve_end": str(160 + DAY),
        "resv_nodes": "(n3:ncpus=2)+(n3:ncpus=2)+(n3:ncpus=1)",
    }
    held = server_reservations(described(R7=second))
    assert {name: (one.start, one.nodes) for name, one in held.items()} == {
        "R7.s": (100 + DAY, ("n3",)),
        "R7.s#2": (100 + 2 * DAY, ("n1", "n2")),
    }


def test_after_an_altered_occurrence_the_others_follow_the_original_rule() -> None:
    altered = STANDING | {
        "reserve_start": "3700",
        "reserve_end": "3800",
        "reserve_standing_revert.start_time": "100",
        "reserve_standing_revert.walltime": "00:01:00",
    }
    held = server_reservations(described(R7=altered))
    assert [(one.start, one.end) for one in held.values()] == [
        (3_700, 3_800),
        (100 + DAY, 160 + DAY),
        (100 + 2 * DAY, 160 + 2 * DAY),
    ]


def test_a_degraded_reservation_moves_only_units_on_lost_vnodes() -> None:
    values = CONFIRMED | {"reserve_state": "10", "reserve_substate": "10", "reserve_retry": "70"}
    found = pending_reservation(values, {"n1", "n3"})
    moved = {"select": "1:ncpus=1", "place": "free", "walltime": "60"}
    slot = ReservationOccurrence(100, moved, "1:ncpus=1", "(n1:ncpus=2)+(n1:ncpus=2)+")
    assert found == PendingReservation((slot,), since=70)
    assert compose_placement(slot, "(n3:ncpus=1)") == "(n1:ncpus=2)+(n1:ncpus=2)+(n3:ncpus=1)"
    assert pending_reservation(values, ALL) is None, "its vnodes are back"
    del values["reserve_retry"]
    assert pending_reservation(values, {"n1"}) is None, "the server does not ask for it now"


def test_a_standing_reservation_moves_only_occurrences_with_lost_vnodes() -> None:
    values = STANDING | {"reserve_state": "10", "reserve_substate": "10", "reserve_retry": "70"}
    found = pending_reservation(values, {"n1", "n2"})
    assert found is not None
    assert [bool(slot.resources) for slot in found.slots] == [False, True, False]
    assert [slot.where for slot in found.slots] == [CONFIRMED["resv_nodes"], "++", CONFIRMED["resv_nodes"]]


@pytest.mark.parametrize("place", ["pack", "scatter:excl", "free:group=rack"])
def test_a_degraded_reservation_with_a_binding_place_is_placed_completely(place: str) -> None:
    values = CONFIRMED | {"reserve_state": "10", "reserve_retry": "70", "Resource_List.place": place}
    whole = ReservationOccurrence(100, ASKED | {"place": place, "walltime": "60"}, ASKED["select"])
    assert pending_reservation(values, {"n1"}) == PendingReservation((whole,), since=70, queue="R7:anew")
    assert compose_placement(whole, "(n3:ncpus=2)") == "(n3:ncpus=2)"
    assert pending_reservation(values, ALL) is None
    runs = pending_reservation(values | {"reserve_state": "5", "reserve_substate": "10"}, {"n1"})
    assert runs is not None
    assert runs.problem == f"with place={place} a part of it cannot be moved by itself"


def test_a_standing_reservation_with_a_binding_place_replaces_only_broken_occurrences() -> None:
    values = STANDING | {"reserve_state": "10", "reserve_retry": "70", "Resource_List.place": "scatter"}
    found = pending_reservation(values, {"n1", "n2"})
    assert found is not None
    assert [slot.where for slot in found.slots] == [CONFIRMED["resv_nodes"], "", CONFIRMED["resv_nodes"]]
    assert [bool(slot.resources) for slot in found.slots] == [False, True, False]


def test_reservations_avoid_vnodes_of_queues() -> None:
    found = pending_reservation(UNCONFIRMED, ALL)
    assert found is not None
    [slot] = outside_queues(found).slots
    assert slot.resources["select"] == "2:ncpus=2:of_queue=False+1:ncpus=1:of_queue=False"
    assert slot.select == ASKED["select"], "what the server is told is as it was asked for"
    stays = PendingReservation(
        (
            ReservationOccurrence(100, {"select": "1:ncpus=1:resv=R7"}),
            ReservationOccurrence(200, where="(n1:ncpus=1)"),
        )
    )
    assert outside_queues(stays) == stays


def test_a_standing_reservation_altered_before_it_had_vnodes_is_refused() -> None:
    """If confirmed, it would have vnodes for only one occurrence, and a real server failed at its end."""
    altered = {"reserve_state": "11", "reserve_substate": "1", "reserve_end": "170"}
    wanted = pending_reservation(UNCONFIRMED | DAILY | altered, ALL)
    assert wanted is not None
    assert (wanted.slots, wanted.problem) == ((), "it was altered before it had vnodes")
    later = pending_reservation(STANDING | altered | {"reserve_substate": "2"}, ALL)
    assert later is not None
    assert (len(later.slots), later.problem) == (1, "")
    single = pending_reservation(UNCONFIRMED | altered, ALL)
    assert single is not None
    assert len(single.slots) == 1, "one that does not come again has vnodes for all of its time"


def test_an_altered_reservation_requests_vnodes_and_its_own_count_as_free() -> None:
    values = CONFIRMED | {"reserve_state": "11", "reserve_start": "500", "reserve_end": "560"}
    assert pending_reservation(values, ALL) == PendingReservation(
        (ReservationOccurrence(500, ASKED, ASKED["select"]),), begin=500, queue="R7:anew"
    )


def test_a_running_reservation_retains_its_vnodes_if_they_are_free_for_longer() -> None:
    values = CONFIRMED | {
        "reserve_state": "11",
        "reserve_substate": "5",
        "reserve_end": "200",
        "reserve_alter_revert.start_time": "100",
        "reserve_alter_revert.walltime": "00:01:00",
        "reserve_alter_revert.select": CONFIRMED["Resource_List.select"],
    }
    found = pending_reservation(values, ALL)
    assert found is not None
    [slot] = found.slots
    assert (slot.start, slot.where, slot.select) == (160, CONFIRMED["resv_nodes"], "")
    assert slot.resources == {
        "select": "2:ncpus=2:resv=R7+1:ncpus=1:resv=R7",
        "place": "free",
        "walltime": "40",
    }
    shorter = pending_reservation(values | {"reserve_end": "130"}, ALL)
    assert shorter == PendingReservation(
        (ReservationOccurrence(100, where=CONFIRMED["resv_nodes"]),), queue="R7:anew"
    )
    smaller = pending_reservation(values | {"Resource_List.select": "1:ncpus=1"}, ALL)
    assert smaller is not None
    assert "while it runs" in smaller.problem


def test_jobs_of_a_reservation_may_begin_with_it() -> None:
    assert begins(described(R7=CONFIRMED, R8=UNCONFIRMED)) == {"R7": 100}
    altered = CONFIRMED | {"reserve_state": "11"}
    assert begins(described(R7=altered)) == {"R7": 160}, "out of its way until that is settled"


def test_the_vnodes_of_all_occurrences_are_written_as_a_single_text() -> None:
    places = ["(n1:ncpus=1)", "(n1:ncpus=1)", "(n2:ncpus=1)+(n2:ncpus=1)", "(n1:ncpus=1)"]
    text = condensed(places)
    assert text == "4#(n1:ncpus=1){0-1,3}(n2:ncpus=1)+(n2:ncpus=1){2}"
    assert unrolled(text) == places
    # A list of several ranges as the server's own scheduler writes it, with a blank and a comma at the end.
    assert unrolled("5#(a:ncpus=1){0-1, 3-4}(b:ncpus=1){2}")[2:4] == ["(b:ncpus=1)", "(a:ncpus=1)"]


@pytest.mark.parametrize("text", ["x", "2(n1){0}", "1#(n1:ncpus=1){0-1}", "-1#(n1){0}", "9999999#(n1){0}"])
def test_a_text_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="sequence of vnodes"):
        unrolled(text)


# ---- parts of nodes ---------------------------------------------------------------------------------


def test_only_the_reserved_part_of_a_node_is_kept() -> None:
    values = CONFIRMED | {"resv_nodes": "(n1:ncpus=2:mem=1024kb)+(n1:ncpus=2:mem=1024kb)+(n2:ngpus=1)"}
    held = server_reservations(described(R7=values), ALL)["R7.s"]
    assert held.nodes == ("n1", "n2")
    assert held.shares == (ShareFacts("n1", 4, mem=2048), ShareFacts("n2", 0, gpus=1))


@pytest.mark.parametrize(
    ("changed", "divisible"),
    [
        ({"Resource_List.place": "scatter:excl"}, ALL),
        ({"Resource_List.place": "exclhost"}, ALL),
        ({"resv_nodes": "(n1:ncpus=2:scratch=1gb)+(n2:ncpus=1)"}, ALL),
        ({}, {"n1", "n3"}),
    ],
)
def test_a_reservation_keeps_whole_nodes_if_others_cannot_use_the_rest(
    changed: dict[str, str], divisible: set[str]
) -> None:
    held = server_reservations(described(R7=CONFIRMED | changed), divisible)["R7.s"]
    assert held.nodes == ("n1", "n2")
    assert held.shares == ()


def test_reservations_with_parts_of_one_node_do_not_admit_each_others_jobs() -> None:
    later = CONFIRMED | {"reserve_start": "160", "reserve_end": "220"}
    elsewhere = CONFIRMED | {"resv_nodes": "(n3:ncpus=2)"}
    found = server_reservations(described(R7=CONFIRMED, R8=CONFIRMED, R9=later, R10=elsewhere), ALL)
    assert {name: one.queues for name, one in found.items()} == {
        "R7.s": ("R10", "R7", "R9"),
        "R8.s": ("R10", "R8", "R9"),
        "R9.s": ("R10", "R7", "R8", "R9"),
        "R10.s": ("R10", "R7", "R8", "R9"),
    }
