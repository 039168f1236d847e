"""``schedd book`` against a daemon on a socket."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schedd.api.app import create_app
from schedd.cli.main import main
from schedd.engine import EngineSettings
from schedd.features.bookings.admission import NO_ROOM
from schedd.policy.site import site_policy
from schedd.service.clusters import Clusters
from tests.api.conftest import token, tokens
from tests.api.served_app import serving
from tests.service.planner_harness import StillClock, node
from tests.waits import WAIT_S

Run = Callable[..., tuple[int, str, str]]
SITE: dict[str, Any] = {"bookings": {"most": 3}}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs a command as a user of two nodes of 8 cpus: exit code, output, errors."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SCHEDD_TOKEN", token("user"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    clock = StillClock()
    clusters = Clusters({"main": EngineSettings(publish_starts=False, site=site_policy(SITE))}, clock)
    clusters.start(warm=False)
    app = create_app(clusters, tokens())
    with serving(app, clusters) as url:
        monkeypatch.setenv("SCHEDD_URL", url)
        clusters["main"].record_adapter_request()
        clusters["main"].submit([node("n1", 8), node("n2", 8)]).result(WAIT_S)

        def run(*args: str) -> tuple[int, str, str]:
            try:
                code = main(("book", *args))
            except SystemExit as end:
                code = int(end.code or 0)
            shown = capsys.readouterr()
            assert "--json" in args or all(len(line) <= 80 for line in shown.out.splitlines()), shown.out
            return code, shown.out, shown.err

        yield run
    clusters.stop()


def test_a_booking_is_created_shown_frozen_and_cancelled(run: Run) -> None:
    assert run()[:2] == (0, "you have no bookings\n")
    code, out, err = run(
        "add", "exam", "-l", "nodes=1:ppn=2", "--for", "1:00:00", "--after", "+1h", "--by", "+5h"
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["NAME", "PHASE", "FROM", "UNTIL", "CORES", "MAY", "MOVE", "ON"]
    assert [word in out for word in ("exam", "flexible", "23:13:20", "Wed 15 Nov 00:13:20", "n1")] == [
        True
    ] * 5
    assert run("list")[1] == out
    code, out, _ = run("freeze", "exam")
    assert (code, "frozen" in out) == (0, True)
    assert run("cancel", "exam")[:2] == (0, "booking exam is cancelled\n")


def test_the_alternative_that_ends_first_is_booked_and_shown(run: Run) -> None:
    code, out, err = run("add", "exam", "-l", "trl=2@7200:4@3600", "--after", "+1h", "--by", "+5h")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"exam +flexible +\S+ .*\S +4 .* n1", out.splitlines()[1]), out


def test_a_booking_of_more_cores_than_the_cluster_has_is_refused_with_the_reason(run: Run) -> None:
    code, out, _ = run("add", "huge", "-l", "trl=900@600:800@1200", "--after", "+1h", "--by", "+5h")
    assert (code, "not booked: it needs 900 units at once; the cluster has room for 16" in out) == (
        1,
        True,
    ), out


def test_a_refused_booking_has_offers_that_can_be_accepted(run: Run) -> None:
    wide = ("-l", "nodes=2:ppn=8", "--for", "60m")
    assert run("add", "first", *wide, "--at", "+2h")[0] == 0
    code, out, _ = run("add", "second", *wide, "--at", "+2h")
    assert (code, f"not booked: {NO_ROOM}" in out) == (1, True)
    assert "schedd book accept second NUMBER takes one" in out
    code, out, _ = run("--json", "accept", "second", "1")
    taken = json.loads(out)
    assert (code, taken["name"], taken["phase"]) == (0, "second", "frozen")
    assert "has 0 counter-offers" in run("accept", "second", "1")[2]


def test_booking_moves_are_shown(run: Run) -> None:
    whole = ("-l", "nodes=1:ppn=8", "--for", "60m")
    assert run("add", "a", *whole, "--at", "+2h")[0] == 0
    assert run("add", "b", *whole, "--after", "+2h", "--by", "+9h")[0] == 0
    assert "MOVED" not in run("show", "b")[1]
    assert run("add", "c", *whole, "--at", "+2h")[0] == 0
    code, out, _ = run("show", "b")
    head, _, moved = out.partition("\n\n")
    assert (code, head.splitlines()[1].split()[:2]) == (0, ["b", "flexible"])
    assert moved.splitlines()[0].split() == ["MOVED", "FROM", "TO"]
    assert moved.splitlines()[1].endswith("Wed 15 Nov 00:13:20  Wed 15 Nov 01:13:20")
    assert run("show", "other")[0] == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("add", "b", "-l", "nodes=1", "--for", "2h"), "say when: --at, or --by (and --after)"),
        (("add", "b", "-l", "nodes=1", "--for", "soon", "--by", "+5h"), "soon: not a duration"),
        (("add", "b", "-l", "nodes=1:ppn", "--for", "2h", "--by", "+5h"), "ppn"),
        (("add", "b", "-l", "nodes=1:ppn=9", "--for", "2h", "--by", "+5h"), "9 cpus on a node"),
        (("freeze", "nobody"), "nobody"),
        (("add", "b", "-l", "nodes=1", "--by", "+5h"), "say how long: --for"),
        (("add", "b", "-l", "trl=2@3600", "--for", "2h", "--by", "+5h"), "leave duration out"),
    ],
)
def test_an_impossible_booking_shows_the_reason(run: Run, args: tuple[str, ...], words: str) -> None:
    code, out, err = run(*args)
    assert (code != 0, words in out + err) == (True, True), (code, out, err)
    assert not any(word in run()[1] for word in ("flexible", "frozen"))
