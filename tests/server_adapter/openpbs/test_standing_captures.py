"""Standing and altered reservations of the emulated OpenPBS.

The exchanges of `standing.jsonl` were recorded from a real 23.06.06: pbs_rsub -r, the scheduler's
confirmation, pbs_ralter and its confirmation, with the output of pbs_rstat in between.
"""

import json
from pathlib import Path

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.frames import encode_request
from server_adapter.batch.replies import Status
from server_adapter.batch.requests import QueueJobRequest, StatusRequest
from server_adapter.dis import Attribute
from server_adapter.emulator import EmulatedOpenPBS, NodeSpec
from server_adapter.emulator.openpbs.state import Reservation, new_vnode
from server_adapter.emulator.principal import Principal
from server_adapter.openpbs.codes import ReservationCode
from server_adapter.openpbs.frames import decode_request
from server_adapter.openpbs.replies import decode_reply
from server_adapter.openpbs.requests import ConfirmReservationRequest, ModifyReservationRequest

RECORDED = [json.loads(line) for line in Path(__file__).with_name("standing.jsonl").read_text().splitlines()]
USER, ROOT = Principal("pbsu1", "opbs"), Principal("root", "opbs", True, True)
HIDDEN = {"hop_count", "Submit_Host"}
"""Attributes that the recorded server showed only to its scheduler."""
WHERE = "(h1[0]:ncpus=2)+(h4:ncpus=2)"
START, DAY = 1_796_464_800, 86_400


def server() -> EmulatedOpenPBS:
    emulated = EmulatedOpenPBS([], server="opbs", time_scale=0, epoch=1_795_614_000.0, run_delay=0)
    new_vnode(emulated.cluster, NodeSpec("h1[0]", 4, memory=8 << 20), "h1")
    new_vnode(emulated.cluster, NodeSpec("h4", 4, memory=8 << 20), "h4")
    emulated.cluster.next_number = 5136
    return emulated


def shown(body: bytes) -> list[tuple[str, str]]:
    payload = decode_reply(body).payload
    assert isinstance(payload, Status)
    [one] = payload.objects
    return [(entry.key, entry.value) for entry in one.attributes if entry.name not in HIDDEN]


def answer(emulated: EmulatedOpenPBS, request: object, who: Principal = ROOT) -> bytes:
    [body] = emulated.handlers.answer(request, who)  # type: ignore[arg-type]
    return body


def test_every_recorded_exchange_is_answered_as_recorded() -> None:
    emulated = server()
    status = StatusRequest(code=RequestCode.STATUS_RESERVATION, name="S5136.opbs")
    for at, record in enumerate(RECORDED):
        if "status" in record:
            assert shown(answer(emulated, status)) == shown(record["status"].encode())
            continue
        emulated.cluster.now = float(dict(shown(RECORDED[at + 1]["status"].encode()))["mtime"])
        request = record["request"].encode()
        frame = decode_request(request)
        assert encode_request(frame.request, user=frame.user) == request
        who = ROOT if frame.user == "root" else USER
        assert answer(emulated, frame.request, who) == record["reply"].encode()


def submit_standing(emulated: EmulatedOpenPBS, rule: str = "FREQ=DAILY;COUNT=3") -> bytes:
    asked = {
        ("reserve_rrule", None): rule,
        ("reserve_start", None): str(START),
        ("Resource_List", "walltime"): "1:00:00",
        ("Resource_List", "select"): "2:ncpus=2",
        ("reserve_timezone", None): "Etc/UTC",
    }
    attributes = tuple([Attribute(name, value, resource) for (name, resource), value in asked.items()])
    return answer(emulated, QueueJobRequest(code=RequestCode.SUBMIT_RESERVATION, attributes=attributes), USER)


def confirm(emulated: EmulatedOpenPBS, where: str, *, taken: bool = True) -> int:
    said = "PBS_RESV_CONFIRM_SUCCESS:partition=pbs-default" if taken else "PBS_RESV_CONFIRM_FAIL"
    request = ConfirmReservationRequest(name="S5136.opbs", destination=where, start=START, extension=said)
    return decode_reply(answer(emulated, request)).code


def alter(emulated: EmulatedOpenPBS, who: Principal = USER, **given: str) -> int:
    attributes = tuple([Attribute(name, value) for name, value in given.items()])
    request = ModifyReservationRequest(name="S5136.opbs", attributes=attributes)
    return decode_reply(answer(emulated, request, who)).code


def present(one: Reservation) -> tuple[int, int, str, ReservationCode]:
    return one.start - START, one.end - one.start, one.nodes, one.state


def test_a_standing_reservation_recurs_on_the_vnodes_of_each_occurrence() -> None:
    emulated = server()
    submit_standing(emulated)
    assert confirm(emulated, f"2#{WHERE}{{0-1}}") == 15004, "it has three times"
    assert confirm(emulated, f"3#{WHERE}{{0,2}}(h4:ncpus=4){{1}}") == 0
    one = emulated.cluster.reservation("S5136")
    assert alter(emulated, reserve_start=str(START + 600), reserve_duration="1800") == 0
    assert confirm(emulated, f"1#{WHERE}{{0}}") == 0
    assert present(one) == (600, 1800, WHERE, ReservationCode.CONFIRMED)
    seen = []
    for moment in (START + 700, START + DAY - 10, START + DAY + 10, START + 2 * DAY + 10):
        emulated.skip(moment - emulated.now)
        seen.append(present(one))
    assert seen == [
        (600, 1800, WHERE, ReservationCode.RUNNING),
        (DAY, 3600, "(h4:ncpus=4)", ReservationCode.CONFIRMED),
        (DAY, 3600, "(h4:ncpus=4)", ReservationCode.RUNNING),
        (2 * DAY, 3600, WHERE, ReservationCode.RUNNING),
    ], "an alteration is of one time alone"
    emulated.skip(3600)
    assert not emulated.cluster.reservations
    assert "S5136" not in emulated.cluster.queues


def test_a_refused_alteration_leaves_the_reservation_as_it_was() -> None:
    emulated = server()
    submit_standing(emulated)
    confirm(emulated, f"3#{WHERE}{{0-2}}")
    one = emulated.cluster.reservation("S5136")
    assert alter(emulated, reserve_start=str(START + 600)) == 0
    assert present(one)[3] is ReservationCode.BEING_ALTERED
    assert alter(emulated, reserve_start=str(START + 900)) == 15016, "one alteration at a time"
    assert confirm(emulated, "null", taken=False) == 0
    assert present(one) == (0, 3600, WHERE, ReservationCode.CONFIRMED)
    emulated.skip(START + 700 - emulated.now)
    assert present(one)[3] is ReservationCode.RUNNING
    assert alter(emulated, reserve_duration="7200") == 0
    assert confirm(emulated, f"1#{WHERE}{{0}}") == 0
    assert present(one) == (0, 7200, WHERE, ReservationCode.RUNNING)


@pytest.mark.parametrize(
    ("given", "who", "code"),
    [
        ({"reserve_start": "1"}, USER, 15086),
        ({"reserve_end": str(START)}, USER, 15086),
        ({"reserve_duration": "soon"}, USER, 15086),
        ({"reserve_duration": "60"}, Principal("pbsu2", "opbs"), 15007),
    ],
)
def test_forbidden_alterations_are_refused(given: dict[str, str], who: Principal, code: int) -> None:
    emulated = server()
    submit_standing(emulated)
    assert alter(emulated, who, **given) == code


@pytest.mark.parametrize("rule", ["FREQ=SOMETIMES", "COUNT=3"])
def test_a_rule_that_makes_no_sense_is_refused(rule: str) -> None:
    emulated = server()
    assert decode_reply(submit_standing(emulated, rule)).code == 15086
    assert not emulated.cluster.reservations
