"""Commands that change something: reservations, accounts, holds, policies, plans, notices."""

import json
import re
from pathlib import Path

import pytest
from fastapi import FastAPI

from schedd.cli.user.time_arguments import parse_time
from schedd.features.notices.daemon_settings import NotifySettings
from schedd.features.notices.notifier import Notifier
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.store import Store
from schedd.wire import (
    JobEnded,
    PolicyChanged,
    QueueChanged,
    QueueFacts,
)
from tests.api.conftest import token
from tests.cli.users.conftest import Run
from tests.service.planner_harness import T, event_id, job
from tests.waits import WAIT_S, wait_until


def test_reservations_are_created_shown_and_lifted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("reservation") == (0, "there are no reservations\n", "")
    code, _, err = run("reservation", "add", "r", "-w", "n1")
    assert (code, "this needs one of the roles operator, admin" in err) == (5, True)
    monkeypatch.setenv("SCHEDD_TOKEN", token("operator"))
    made = run("reservation", "add", "repair", "-w", "n1,n2", "--start", "+1h", "--end", "2023-11-15T08:00")
    assert (made[0], made[2]) == (0, "")
    assert made[1] == (
        "NAME    FROM                 UNTIL                NODES   REASON\n"
        "repair  Tue 14 Nov 23:13:20  Wed 15 Nov 08:00:00  n1, n2\n"
        "promises put at risk by it: 1\n"
    )
    assert run("reservation", "list")[1].splitlines() == made[1].splitlines()[:2]
    code, out, _ = run("reservation", "add", "other", "-w", "n1", "--start", "+1h", "--preview")
    assert code == 0
    assert out.startswith("Effects of reservation other; nothing was changed:\n1 waiting job would move")
    assert "other" not in run("reservation", "list")[1]
    assert run("reservation", "add", "repair", "-w", "n9")[2].endswith("nodes: no node n9\n")
    assert run("reservation", "add", "repair")[0] == 2
    _, _, err = run("reservation", "add", "repair", "--all", "--end", "soon")
    assert "soon: no time; write tonight, tomorrow, friday" in err
    assert run("reservation", "add", "other", "--all", "--start", "tomorrow 8:00", "--preview")[0] == 0
    quick = run("reservation", "add", "quick", "--all", "--cores", "2", "--gpus", "1", "--shorter", "30")
    assert "(2 cores and 1 gpu of each" in quick[1]
    assert run("reservation", "add", "quick", "--all", "--total")[2].endswith("name an amount\n")
    assert run("reservation", "remove", "quick")[0] == 0
    assert run("reservation", "remove", "repair")[:2] == (0, "reservation repair is removed\n")
    assert run("reservation", "remove", "repair")[0] == 3


def test_price_and_cap_series_are_uploaded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDD_TOKEN", token("admin"))
    hour = {"core_hour": 0.9, "first": "2023-11-14T23:00:00", "last": "2023-11-15T00:00:00"}
    series = json.dumps([{"core_hour": 0.5}, hour])
    caps = '[{"watts": 25000}]'
    code, _, err = run("policy", "set", f"prices={series}", 'power={"*": {"idle": 9}}', f"power_caps={caps}")
    assert (code, err) == (0, "")
    # Job 2 runs from 22:30 on, on 16 cores for an hour: half of it in the dear hour.
    assert run("cost", "2")[1].splitlines()[2] == "cost    11.20 EUR"


def test_accounts_are_created_changed_and_reported(
    run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("account")[1] == "there are no accounts that you may use or see\n"
    monkeypatch.setenv("SCHEDD_TOKEN", token("admin"))
    run("account", "set", "phys", "100", "--users", "ann,bob", "--overdraft", "5")
    assert run("account", "move", "phys", "phys", "1")[0] == 2
    run("account", "set", "chem", "0", "--unit", "core-hours")
    run("account", "move", "phys", "chem", "30", "--reason", "a favour")
    run("account", "take", "chem", "10")
    code, out, _ = run("account", "set", "phys", "90")
    assert code == 0
    assert out.splitlines() == [
        "ACCOUNT   LEFT  AMOUNT  CHARGED  HELD  UNIT        UNTIL  USERS",
        "chem     20.00    0.00     0.00  0.00  core-hours  -      -",
        "phys     65.00   90.00     0.00  0.00  core-hours  -      ann, bob",
    ]
    rule = {"accounts": {"otherwise": "phys"}}
    loop.submit([PolicyChanged(id="p", time=T, version=1, site=rule, by="a test")]).result(WAIT_S)
    loop.submit([JobEnded(id=event_id(), time=T + 600, job_id="1.srv.site")]).result(WAIT_S)
    wait_until(lambda: " charge " in run("account", "ledger")[1])
    assert re.search(r"phys +transfer +-30.00 +70.00 +chem +our-admin a fav", run("account", "ledger")[1])
    code, out, _ = run("account", "report", "--by", "account,user", "--csv")
    assert out.splitlines() == [
        "month,account,user,unit,jobs,core_hours,gpu_hours,charged",
        ",phys,ann,core_hours,1,1.3333,0.0,1.3333333333333333",
    ]
    assert run("account", "report")[1].splitlines()[1].split()[:4] == ["2023-11", "phys", "ann", "1"]
    assert run("account", "report", "--since", "yesterday")[0] == 2


def test_alternatives_are_searched_shown_and_applied(
    run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("alternatives")[0] == 5
    monkeypatch.setenv("SCHEDD_TOKEN", token("operator"))
    assert run("alternatives")[:2] == (0, "there are no alternatives yet: schedd alternatives search\n")
    assert run("alternatives", "apply", "1")[2].endswith(
        "there are no alternatives yet: schedd alternatives search\n"
    )
    assert run("alternatives", "stop")[1] == "no search is running\n"
    loop.reconfigure(loop.published.settings.with_changes(slack="1000000", search_every=0)).result(WAIT_S)
    long = [job(f"l{i}.srv", nodes="1:ppn=8", walltime="9000") for i in range(3)]
    loop.submit(long + [job(f"s{i}.srv", nodes="1:ppn=8", walltime="2000") for i in range(6)]).result(WAIT_S)
    code, out, _ = run(
        "alternatives", "search", "--evaluations", "40", "--weight", "wait=1", "--weight", "wait_max=0.1"
    )
    assert code == 0
    told, _, plans = out.partition("\n\n")
    assert "\nweights     wait 1, wait_max 0.1\nsince then  0% of the jobs came, went or moved" in told
    heads, live, best, *_ = plans.splitlines()
    assert heads.split() == ["PLAN", "WAIT", "WAIT_MAX", "MOVED"]
    assert re.match(r"^live +\d\d:\d\d:\d\d +\d\d:\d\d:\d\d$", live)
    assert re.match(r"^1 +-\d+\.\d % ", best)
    code, out, _ = run("alternatives", "show", "1")
    assert (code, out.split()[:4]) == (0, ["JOB", "OWNER", "STARTS", "BY"])
    assert " sooner" in out
    assert run("alternatives", "show", "99")[0] == 2
    code, out, _ = run("alternatives", "apply", "1")
    assert code == 0
    assert re.search(r"^moved +\d+ jobs$", out, re.MULTILINE)
    assert re.search(r"^wait +\S+ -> \S+$", out, re.MULTILINE)
    code, _, err = run("alternatives", "apply", "1", "--tolerance", "0")
    assert (code, "of the jobs have come, gone or moved" in err) == (6, True)
    for share in ("200", "-1"):
        code, _, err = run("alternatives", "apply", "1", f"--tolerance={share}")
        assert (code, f"--tolerance {share}: a share in percent is from 0 to 100" in err) == (2, True)
    assert run("alternatives", "search", "--weight", "energy")[2].endswith("such as energy=2\n")
    assert "there is no objective 'x'" in run("alternatives", "search", "--weight", "x=1")[2]


def test_a_search_runs_and_shows_its_result(
    run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("optimise", "--list")[1] == "there were no searches yet\n"
    assert run("optimise")[0] == 5
    monkeypatch.setenv("SCHEDD_TOKEN", token("operator"))
    assert run("optimise")[1] == "there is nothing to search: fewer than two jobs could be moved\n"
    long = [job(f"l{i}", nodes="1:ppn=8", walltime="9000") for i in range(3)]
    loop.submit([*long, *(job(f"s{i}", nodes="1:ppn=8", walltime="60") for i in range(6))]).result(WAIT_S)
    code, out, _ = run("optimise")
    assert code == 0
    assert re.search(r"^search +\w+, \d+\.\d s, \d+ moves tried; ", out)
    assert re.search(r"^moved +\d+ of \d+ jobs in the plan$", out, re.MULTILINE)
    code, out, _ = run("optimise", "--list")
    assert (code, out.splitlines()[0].split()[:2]) == (0, ["STARTED", "KIND"])
    assert "asked for" in out


@pytest.mark.parametrize(
    ("text", "seconds"), [("+90m", 5400), ("+2d", 172_800), ("22:20", 400), ("2023-11-14T22:13:21", 1)]
)
def test_times_are_parsed_in_common_notations(text: str, seconds: int) -> None:
    assert parse_time(text, T) == T + seconds


def test_nodes_and_queues_are_held_and_released(
    run: Run, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = QueueChanged(id=event_id(), time=T, queue=QueueFacts(name="batch"))
    loop.submit([queue]).result(WAIT_S)
    assert run("hold") == (0, "nothing is held\n", "")
    assert run("hold", "-w", "n1")[:2] == (2, "")
    assert run("hold", "-w", "n1", "--reason", "x")[0] == 5
    monkeypatch.setenv("SCHEDD_TOKEN", token("operator"))
    assert run("hold", "--preview")[0] == 2
    code, out, _ = run("hold", "-w", "n2", "--preview")
    assert (code, run("hold")[1]) == (0, "nothing is held\n")
    effects = "node n2: 1 waiting job would move, 1 promise would be put at risk\n"
    assert out.startswith(f"Effects of this hold; nothing was changed:\n{effects}")
    assert "2.srv.site  bob   Tue 14 Nov 22:30:00  not known  at risk" in out
    held = run("hold", "-w", "n2", "-q", "batch", "--reason", "new memory")
    assert held[0] == 0
    assert [line.split()[:2] for line in held[1].splitlines()] == [
        ["KIND", "NAME"],
        ["node", "n2"],
        ["queue", "batch"],
    ]
    assert run("hold")[1] == held[1]
    assert "waiting for queue batch, which is held" in run("showq", "-b")[1]
    assert run("release", "-w", "n2", "-q", "batch")[1] == (
        "node n2: jobs are planned there again\nqueue batch: jobs are planned there again\n"
    )
    assert run("release", "-w", "n2")[0] == 2
    assert run("release")[0] == 2
    error = run("hold", "-w", "n2,n9", "--reason", "x")[2]
    assert error.startswith("held already: node n2\nschedd hold: no ")
    code, out, error = run("release", "-w", "n2,n9", "--json")
    assert (code, out, error.partition("\n")[0]) == (2, "", "released already: node n2")
    assert run("hold", "-w", "n9", "--reason", "x") == (
        2,
        "",
        "schedd hold: no node, property or state n9; allowed: n1, n2, n10\n",
    )
    assert run("hold", "-w", "n[1-2]", "--reason", "x")[1].count("\nnode  n") == 2
    assert run("release", "-w", "n*")[:2] == (0, "node n*: jobs are planned there again\n")
    assert run("hold") == (0, "nothing is held\n", "")


def test_policy_is_shown_previewed_set_and_withdrawn(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run("policy")[0] == 5
    monkeypatch.setenv("SCHEDD_TOKEN", token("admin"))
    assert run("policy") == (0, "the policy of the settings file\n{}\n", "")
    assert (
        "0 waiting jobs would move, 0 promises would be put at risk"
        in run("policy", "preview", "priority.waiting=2", "criteria.wait=1")[1]
    )
    assert run("policy", "show")[1].startswith("the policy of the settings file\n")
    made = run("policy", "set", "priority.waiting=2")[1].partition("\n")
    assert made[0] == "version 1, set while the daemon runs"
    assert json.loads(made[2]) == {"priority": {"waiting": 2.0}}
    file = tmp_path / "site.toml"
    file.write_text('[[limits]]\nwhat = "jobs"\namount = 1\n')
    code, out, err = run("policy", "set", str(file))
    assert (code, err) == (0, "")
    assert out.startswith("version 2, set while the daemon runs\n")
    assert '"amount": 1' in run("policy")[1]
    for given, made_of in (
        ("objectives = { wait = 1, energy = 2 }", {"objectives": {"wait": 1, "energy": 2}}),
        ("clusters.main.site.priority.waiting = 3", {"priority": {"waiting": 3}}),
        ("choose.every=1800", {"choose": {"every": 1800}}),
        ('choose = { every = "30m" }', {"choose": {"every": "30m"}}),
    ):
        code, out, err = run("policy", "set", given)
        assert (code, err) == (0, ""), given
        site = json.loads(out.partition("\n")[2])
        for key, value in made_of.items():
            assert value == site[key] or key == "choose", given
    code, _, err = run("policy", "set", " = 3")
    assert (code, "the key before = is missing" in err) == (2, True)
    file.write_text("[clusters.main.site.priority]\nwaiting = 7\n[auth]\nadmins = ['root']\n")
    code, out, err = run("policy", "set", str(file))
    assert (code, err) == (0, "")
    assert json.loads(out.partition("\n")[2]) == {"priority": {"waiting": 7.0}}
    file.write_text("[clusters.a.site]\n[clusters.b.site]\n")
    code, _, err = run("policy", "set", str(file))
    assert (code, "has the clusters a, b: name one with --cluster" in err) == (2, True)
    code, _, err = run("policy", "set", "priority.nonsense=2")
    assert (code, "priority.nonsense" in err) == (2, True)
    assert run("policy", "set", str(tmp_path / "none"))[2].endswith("none: No such file or directory\n")
    assert run("policy", "withdraw")[1] == "the policy of the settings file\n{}\n"


def test_notify_adds_lists_and_removes_notices(
    run: Run, app: FastAPI, loop: PlanLoop, tmp_path: Path
) -> None:
    assert run("notify") == (0, "you have no notices; this site offers: nothing\n", "")
    store = Store.open(f"sqlite:///{tmp_path}/s.sqlite")
    settings = NotifySettings(relay="127.0.0.1:9", sender="schedd@example.org", domains=("example.org",))
    app.state.services = [Notifier(loop, settings, lambda: store)]
    try:
        code, shown, _ = run("notify", "add", "--job", "2", "--moved", "30m", "--before", "1h")
        assert code == 0
        head, row = shown.splitlines()
        assert head.split() == ["NUMBER", "JOBS", "MOVED", "BY", "BEFORE", "DEADLINE", "WALLTIME", "TO"]
        assert row.split()[:5] == ["1", "2.srv.site", "00:30:00", "01:00:00", "-"]
        row = run("notify", "add", "--all", "--lost")[1].splitlines()[-1]
        assert row.split()[:6] == ["2", "all", "own", "-", "-", "lost"]
        run("notify", "remove", "2")
        assert "give one or more of" in run("notify", "add", "--all")[2]
        assert "not a length of time" in run("notify", "add", "--all", "--before", "soon")[2]
        assert "you have no notices" in run("notify", "remove", "1")[1]
    finally:
        app.state.services = ()
        store.close()
