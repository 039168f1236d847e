"""``schedd book --federation`` and ``schedd submit --booking`` against a federation on a socket."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn
from structlog.testing import capture_logs

from schedd.cli.main import main
from schedd.features.bookings.admission import NO_ROOM
from tests.engine.cluster import T
from tests.federation.booking_harness import HERE, WIDE, BookingHarness

Run = Callable[..., tuple[int, str, str]]
WHOLE = ("-l", "nodes=2:ppn=4", "--for", "10m")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BookingHarness]:
    made = BookingHarness(tmp_path)
    yield made
    made.close()


@pytest.fixture
def run(
    harness: BookingHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Runs a command as ann; it is 14 November 2023, 22:13:20 UTC, at the clusters and for the command."""
    server = uvicorn.Server(uvicorn.Config(harness.app, port=0, log_config=None, lifespan="off"))
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    monkeypatch.setenv("SCHEDD_FEDERATION", f"http://127.0.0.1:{listening.getsockname()[1]}")
    monkeypatch.setenv("SCHEDD_TOKEN", "token-of-ann@org")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        shown = capsys.readouterr()
        assert "--json" in words or all(len(line) <= 100 for line in shown.out.splitlines()), shown.out
        return code, shown.out, shown.err

    with capture_logs():  # else they stand among what the command prints
        yield run
    server.should_exit = True
    thread.join()


def test_commands_book_show_freeze_and_cancel(harness: BookingHarness, run: Run) -> None:
    book = ("book", "--federation")
    assert run(*book)[:2] == (0, "you have no bookings\n")
    harness.simulation.busy("a", 2, 5_000)
    code, out, err = run(*book, "add", "exam", *WHOLE, "--after", "+1h", "--by", "+5h")
    assert (code, err) == (0, "")
    heads, line = out.splitlines()
    assert heads.split() == ["NAME", "STATE", "CLUSTER", "FROM", "UNTIL", "CORES", "WHY"]
    assert line.split()[:3] == ["exam", "flexible", "b"]
    assert "Tue 14 Nov 23:13:20" in line
    assert line.endswith("8      may move by 03:50:00")
    assert run(*book, "list")[1] == out
    code, out, _ = run(*book, "show", "exam")
    assert code == 0
    assert out.startswith("booking exam: ann@org\n")
    for words in ("window     Tue 14 Nov 23:13:20 to Wed 15 Nov 03:13:20", "fed.1.1", "is frozen  "):
        assert words in out
    code, out, _ = run(*book, "freeze", "exam")
    assert (code, "frozen" in out) == (0, True)
    assert "exam is frozen" in run(*book, "freeze", "exam")[2]
    assert run(*book, "cancel", "exam")[:2] == (0, "booking exam is cancelled\n")
    assert run(*book)[1] == "you have no bookings\n"


def test_command_accepts_an_alternative_after_refusal(run: Run) -> None:
    book = ("book", "--federation")
    for name in "ab":
        assert run(*book, "add", f"first-{name}", *WHOLE, "--at", "+2h", "--only", name)[0] == 0
    code, out, _ = run(*book, "add", "second", *WHOLE, "--at", "+2h")
    assert code == 1
    assert out.startswith(f"not booked:  a: {NO_ROOM}; b: there is no room")
    lines = [line.split() for line in out.splitlines() if line[:1].isdigit()]
    assert {line[1] for line in lines} == {"a", "b"}
    assert {line[-1] for line in lines} == {"before", "after"}
    assert "schedd book --federation accept second NUMBER accepts one" in out
    assert "OFFER" in run(*book, "show", "second")[1]
    code, out, _ = run("book", "--federation", "--json", "add", "third", *WHOLE, "--at", "+2h")
    assert (code, set(json.loads(out))) == (1, {"refused", "options"})
    code, out, _ = run("book", "--federation", "--json", "accept", "second", "1")
    taken = json.loads(out)
    assert (code, taken["name"], taken["state"], taken["cluster"]) == (0, "second", "frozen", lines[0][1])
    assert "has 0 counter-offers" in run(*book, "accept", "second", "1")[2]


def test_report_command_shows_bookings(run: Run) -> None:
    book = ("book", "--federation")
    run(*book, "add", "exam", *WHOLE, "--at", "+2h", "--only", "a")
    run(*book, "add", "more", *WHOLE, "--at", "+2h", "--only", "a")
    code, out, _ = run("federation", "report")
    told = out.partition("bookings\n")[2].splitlines()
    assert (code, [" ".join(line.split()) for line in told]) == (
        0,
        [
            "requested, booked 2, 1",
            "of these by a counter-offer 0",
            "refused 1; 1 times a cluster had no room",
            "ended, cancelled, lost 0, 0, 0",
            "moves 0",
        ],
    )


def test_command_shows_booking_moves(harness: BookingHarness, run: Run) -> None:
    book = ("book", "--federation")
    for name in "ab":
        run(*book, "add", f"first-{name}", *WHOLE, "--after", "+10m", "--by", "+5h", "--only", name)
    assert run(*book, "add", "late", *WHOLE, "--at", "+10m")[0] == 0
    (late,) = [one for one in harness.simulation.federation.bookings.by_id.values() if one.name == "late"]
    assert late.placed is not None
    moved = f"first-{late.placed.cluster}"
    harness.until(lambda: "MOVED" in run(*book, "show", moved)[1])
    last = run(*book, "show", moved)[1].splitlines()[-1]
    assert last.endswith("Tue 14 Nov 22:23:20  Tue 14 Nov 22:33:20")


def test_command_names_an_unreachable_cluster(
    harness: BookingHarness, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedd.federation.api.bookings._CLUSTER_REPLY_S", 0.2)
    book = ("book", "--federation")
    run(*book, "add", "exam", *WHOLE, "--at", "+2h", "--only", "b")
    harness.simulation.cut = {"b"}
    harness.later(1)
    assert "b does not answer" in run(*book)[1]
    code, out, _ = run(*book, "cancel", "exam")
    assert code == 0
    assert out == (
        "booking exam: withdrawn by ann@org; it will be cancelled once b answers: it does not answer\n"
    )


def test_command_submits_a_job_into_a_booking(harness: BookingHarness, run: Run, tmp_path: Path) -> None:
    run("book", "--federation", "add", "exam", *WHOLE, "--at", "+2h", "--only", "b")
    script = tmp_path / "job.sh"
    script.write_text("sleep 1\n")
    submit = ("submit", "-l", "nodes=1:ppn=4,walltime=60", "--booking", "exam")
    code, out, err = run(*submit, str(script))
    assert (code, err) == (0, "")
    assert re.search(r"^booking +exam$", run("checkjob", "--federation", out.strip())[1], re.MULTILINE)
    assert out.strip() in run("book", "--federation", "show", "exam")[1]
    code, _, err = run("submit", "-l", "nodes=1", "--booking", "other", str(script))
    assert (code, "ann@org has no booking other in the federation" in err) == (2, True)
    harness.client("ann@org").delete(f"{HERE}/exam")
    code, _, err = run(*submit, str(script))
    assert (code, "booking exam is cancelled" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--federation", "add", "x", "-l", "nodes=1", "--for", "1h"), 2, "say when: --at, or --by"),
        (
            ("--federation", "add", "x", "-l", "nodes=1", "--for", "soon", "--at", "+1h"),
            2,
            "not a duration",
        ),
        (
            ("--federation", "add", "x", "-l", "nodes=1", "--for", "2h", "--by", "+1h"),
            2,
            "it needs 02:00:00, more than the window from 14 Nov",
        ),
        (("--federation", "add", "x", "-l", "nodes=1:ppn=x", "--for", "1h", "--at", "+1h"), 2, "ppn=x"),
        (("--federation", "add", "x", *WHOLE, "--at", "+1h", "--only", "z"), 2, "no cluster z"),
        (("--federation", "add", "x", *WHOLE, "--at", "+1h", "--by-speed"), 2, "by_speed needs a window"),
        (
            ("--federation", "add", "x", *WHOLE, "--at", "+1h", "--owner", "bob@org"),
            5,
            "may not act for bob@org",
        ),
        (("--federation", "show", "theirs"), 3, "the federation has no booking theirs"),
        (("--federation", "cancel", "none"), 3, "the federation has no booking none"),
        (("--federation", "--cluster", "a", "list"), 2, "name clusters by --only"),
        (("--federation", "--url", "http://127.0.0.1:9", "list"), 4, "no daemon answers"),
    ],
)
def test_command_errors_are_short(
    harness: BookingHarness, run: Run, words: tuple[str, ...], code: int, said: str
) -> None:
    harness.client("bob@org").put(f"{HERE}/theirs", json={**WIDE, "deadline": T + 9_000})
    found = run("book", *words)
    assert (found[0], found[2].count("\n")) == (code, 1), found
    assert said in found[2]


def test_option_only_needs_a_federation(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHEDD_FEDERATION")
    found = run("book", "--federation")
    assert (found[0], "the address of the federation is missing" in found[2]) == (2, True)
