"""``schedd import`` of the configuration of pbs_sched: TORQUE's and OpenPBS's."""
# ruff: noqa: DTZ001  (dedicated time is on the wall clock)

from datetime import date, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from schedd.cli.importing.result import Verdict, duration
from schedd.policy.recurrence import Recurrence, occurrences
from schedd.policy.site import site_policy
from schedd.service.settings.cluster import ClusterSettings
from tests.cli.import_helpers import (
    EXAMPLES,
    finding_text,
    import_directory,
    import_sched,
    lines_with_findings,
    setting_lines,
    settings_in,
)
from tests.cli.scheduler_parameters import OPENPBS as OPENPBS_OPTIONS
from tests.cli.scheduler_parameters import TORQUE as TORQUE_OPTIONS

TORQUE = EXAMPLES / "torque"
OPENPBS = EXAMPLES / "openpbs"
PRIME = "YEAR 2026\nweekday 0600 1730\nsaturday none all\n"
SHARES = "ann 10 root 60\nbob 11 root 40\n"

# ---- nothing is lost ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["true ALL", "false", "5", '"a, b"', "x non_prime", "x none"])
@pytest.mark.parametrize("holidays", ["", PRIME])
def test_every_pbs_sched_option_has_a_finding(value: str, holidays: str) -> None:
    for name in {*TORQUE_OPTIONS, *OPENPBS_OPTIONS}:
        done = import_sched(f"\n{name}: {value}\n", holidays=holidays)
        found = [one for one in done.findings if one.line == 2 and not one.file]
        assert found, name
        assert not [one for one in found if "no such setting" in one.message], name


@pytest.mark.parametrize("names", [TORQUE_OPTIONS, OPENPBS_OPTIONS])
def test_every_line_from_all_files_is_reported(names: list[str]) -> None:
    text = "\n".join(f"{name}: true" for name in names)
    beside = {
        "holidays": f"* the year\n{PRIME}  1  Jan 1  New Year's Day\n",
        "resource_group": f"# shares\n{SHARES}what is this\nlab 12 root 0\neve 13 lab 2\n",
        "dedicated_time": "# some\n12/24/2026 08:00 12/26/2026 20:00\n04/15/98 12:00 04/15/98 15:30\nx\n",
    }
    for fair in ("", "\nfair_share: false\n"):
        done = import_sched(text + fair, **beside)
        assert lines_with_findings(done) == setting_lines(text + fair)
        for file, said in beside.items():
            assert lines_with_findings(done, file) == setting_lines(said, "#*"), file


@pytest.mark.parametrize("directory", [TORQUE, OPENPBS])
def test_every_line_in_the_examples_has_a_finding(directory: Path) -> None:
    done = import_directory(directory)
    for path in directory.iterdir():
        file = "" if path.name == "sched_config" else path.name
        assert lines_with_findings(done, file) == setting_lines(path.read_text(), "#*"), path.name


def test_repeated_options_are_reported_as_overridden() -> None:
    done = import_sched("by_queue: false\nsort_queues: true\nby_queue: true\n")
    assert done.site["priority"]["queue"] == 10**9
    assert any(
        one.line == 1 and "line 3 sets it again" in one.message
        for one in done.with_verdict(Verdict.NOT_NEEDED)
    )


# ---- the order of jobs --------------------------------------------------------------------------


def test_queues_precede_fair_share_as_the_only_torque_key() -> None:
    assert import_directory(TORQUE).site["priority"] == {"queue": 10**9, "fair_share": 8e8}


def test_each_key_outweighs_all_that_follow() -> None:
    text = "sort_by: multi_sort\nkey: high_priority_first\nkey: short_walltime_first\nkey: fair_share\n"
    priority = import_sched(text, resource_group=SHARES).site["priority"]
    most = {"wish": 2048, "short": 1, "class": 100}
    assert priority["wish"] > priority["short"] * most["short"] + priority["class"] * most["class"]
    assert priority["short"] > priority["class"] * most["class"]


def test_sorting_by_cput_is_not_translated_to_walltime() -> None:
    done = import_sched("sort_by: shortest_job_first ALL\n")
    assert "short" not in done.site["priority"]
    assert finding_text(done, "sort_by shortest_job_first").startswith(
        "different: pbs_sched sorts by requested cput"
    )


@pytest.mark.parametrize("text", ['job_sort_key: "fair_share_perc HIGH"', "sort_by: fair_share"])
def test_sorting_by_shares_ignores_usage(text: str) -> None:
    done = import_sched(text + "\n", resource_group=SHARES)
    assert "fair_share" not in done.site
    assert done.site["classes"] == {
        "share-ann": {"points": 60.0, "users": ["ann"]},
        "share-bob": {"points": 40.0, "users": ["bob"]},
    }
    assert done.site["priority"]["class"] > 0
    settings_in(done.toml("main"))
    assert "all users have the same shares" in " ".join(one.message for one in import_sched(text).findings)


def test_queues_have_no_weight_without_by_queue_or_under_strict_fifo() -> None:
    """The server's priorities of queues would count by default."""
    assert import_sched("round_robin: false\n").site["priority"]["queue"] == 0
    assert (
        import_sched("by_queue: true\nsort_queues: true\nstrict_fifo: true\n").site["priority"]["queue"] == 0
    )
    assert import_sched('by_queue: true\nresources: "ncpus, mem"\n').site["priority"]["queue"] == 10**9
    assert finding_text(import_sched("by_queue: true\n"), "by_queue").startswith(
        "blocker: sort_queues is off"
    )


def test_openpbs_sort_keys_follow_fair_share() -> None:
    done = import_directory(OPENPBS)
    assert done.site["priority"] == {"queue": 0, "fair_share": 8e8, "wish": 3.9e5 / 2048, "size": 0.19}
    assert finding_text(done, "job_sort_key mem LOW").startswith(
        "blocker: the table priority has no weight for mem"
    )
    assert finding_text(done, "job_sort_key walltime LOW").startswith("blocker: not translated")


# ---- fair share ---------------------------------------------------------------------------------


def test_the_share_tree_from_torque_is_kept() -> None:
    done = import_directory(TORQUE)
    assert done.site["fair_share"] == {
        "levels": ["user"],
        "interval": 172_800,
        "decay": 0.5,
        "depth": 20,
        "unlisted_group": "unknown",
        "shares": {"unknown": 10.0, "physics": 60.0, "biology": 40.0, "ann": 2.0, "bob": 1.0, "eve": 1.0},
        "parents": {"ann": "physics", "bob": "physics", "eve": "biology"},
    }
    kept = [one.line for one in done.with_verdict(Verdict.TRANSLATED) if one.file == "resource_group"]
    assert kept == [2, 3, 4, 5, 6]
    assert finding_text(done, "fair_share").endswith(
        "use is counted in cpu-seconds held, not in cpu time used"
    )


def test_groups_nest_to_any_depth_and_bad_lines_are_left_out_with_a_reason() -> None:
    """pbs_sched leaves out the same lines, and logs the line."""
    groups = "a 1 root 5\nb 2 a 4\nc 3 b 3\nann 4 C 2\n"
    bad = {
        5: ("ANN 5 root 1", "ANN is already on line 4"),
        6: ("x 6 y 1", "no line above defines its parent y"),
        7: ("y 7 x 1", "no line above defines its parent x"),
        8: ("z 8 root -1", "shares must be a number from 0 to 10^9"),
        9: ("p/q 9 root 1", "a name with / is not supported"),
        10: ("bob 10 root", "the line is not 'name number parent shares'"),
    }
    text = groups + "".join(f"{line}\n" for line, _ in bad.values())
    done = import_sched("fair_share: true\nunknown_shares: 1\n", resource_group=text)
    assert done.site["fair_share"]["parents"] == {"b": "a", "c": "b", "ann": "c"}
    found = {
        one.line: one.message for one in done.with_verdict(Verdict.DIFFERS) if one.file == "resource_group"
    }
    assert found == {
        number: f"{line!r} is left out, as in pbs_sched: {reason}" for number, (line, reason) in bad.items()
    }
    settings_in(done.toml("main"))


def test_openpbs_fair_share_keeps_its_decay() -> None:
    assert import_directory(OPENPBS).site["fair_share"] == {
        "levels": ["group"],
        "interval": 86_400,
        "decay": 0.5,
        "depth": 7,
        "shares": {"physics": 30.0, "biology": 10.0},
        "unlisted": 0.0,
    }


def test_users_without_shares_are_excluded_or_named() -> None:
    """Without shares no user runs there, unless fairshare_enforce_no_shares is off."""
    text = "fair_share: true\nfairshare_usage_res: cput\n"
    group = SHARES + "eve 12 root 0\n"
    done = import_sched(text + "unknown_shares: 5\n", resource_group=group)
    assert done.site["limits"] == [{"amount": 0, "what": "jobs", "who": "user", "name": "eve"}]
    assert finding_text(done, "fairshare_enforce_no_shares") == "translated: limits of 0 jobs for eve"
    strangers = import_sched(text, resource_group=SHARES)
    assert finding_text(strangers, "fairshare_enforce_no_shares").startswith(
        "blocker: PBS never runs jobs of a user that is not in"
    )
    off = import_sched(text + "fairshare_enforce_no_shares: false\n", resource_group=group)
    assert finding_text(off, "fairshare_enforce_no_shares").startswith("not needed: it is off")
    assert "limits" not in off.site
    without = import_sched("fair_share: false\nfairshare_enforce_no_shares: true\n", resource_group=group)
    assert finding_text(without, "fairshare_enforce_no_shares") == "not needed: fair share is off"
    queues = import_sched(f"{text}fairshare_entity: queue\nunknown_shares: 5\n", resource_group=group)
    assert finding_text(queues, "fairshare_enforce_no_shares").startswith("blocker: schedd would run jobs of")


# ---- times --------------------------------------------------------------------------------------


def test_dedicated_time_that_is_over_does_not_matter() -> None:
    """As in the files that both servers ship, of 1998."""
    done = import_sched(
        "dedicated_prefix: ded\n",
        dedicated_time="04/15/1998 12:00 04/15/1998 15:30\n4/15/98 16:00 4/15/98 16:40\n",
    )
    assert not done.with_verdict(Verdict.BLOCKER)
    assert finding_text(done, "dedicated time") == "not needed: it is in the past"
    assert finding_text(done, "dedicated_prefix").startswith("different: dedicated_time has no future")


def test_future_dedicated_time_is_a_reservation_with_named_queues() -> None:
    done = import_directory(TORQUE)
    assert done.site["reservations"] == {
        "dedicated-2026-12-24T0800": {
            "first": datetime(2026, 12, 24, 8),
            "last": datetime(2026, 12, 26, 20),
            "everywhere": True,
            "reason": "dedicated time",
        }
    }
    blockers = [finding.setting for finding in done.with_verdict(Verdict.BLOCKER)]
    assert blockers == ["dedicated_prefix", "ignore_queue", "dedicated time"]
    without = import_sched("by_queue: false\n", dedicated_time="12/24/2026 08:00 12/26/2026 20:00\n")
    assert finding_text(without, "dedicated time").startswith("translated: the reservation dedicated-")
    wrong = import_sched("by_queue: false\n", dedicated_time="12/26/2026 08:00 12/24/2026 20:00\n")
    assert finding_text(wrong, "dedicated time") == "blocker: it ends before it begins"


def test_queues_of_prime_and_other_time_are_closed_in_the_other_time() -> None:
    """On each hour of two weeks with a holiday, against the rule of pbs_sched."""
    holidays = "YEAR 2026\nweekday 0600 1730\nsaturday 0800 1200\nsunday none all\n 342 Dec 8 Feast\n"
    text = "primetime_prefix: p_\nnonprimetime_prefix: np_\nbackfill_prime: true\n"
    done = import_sched(text + "prime_exempt_anytime_queues: true\n", holidays=holidays)
    assert not done.with_verdict(Verdict.BLOCKER)
    table = settings_in(done.toml("main"))
    limits = site_policy(ClusterSettings(**table).site.plain).limits
    for hour in range(14 * 24):
        moment = datetime(2026, 11, 30, 0, 30, tzinfo=ZoneInfo("Europe/Prague")) + timedelta(hours=hour)
        minutes = moment.hour * 60 + moment.minute
        start, end = [(360, 1050), (480, 720), (0, 0)][max(moment.weekday() - 4, 0)]
        prime = start <= minutes < end and moment.date() != date(2026, 12, 8)
        second = int(moment.timestamp())
        closed = {
            limit.queue for limit in limits if occurrences(Recurrence.parse(limit.during), second, second + 1)
        }
        assert closed == {"np_*" if prime else "p_*"}, moment


def test_without_exempt_queues_no_job_runs_across_a_change_of_prime_time() -> None:
    done = import_directory(OPENPBS)
    assert not {"backfill_prime", "primetime_prefix", "nonprimetime_prefix"} & {
        finding.setting for finding in done.with_verdict(Verdict.BLOCKER)
    }
    edges = [one for one in done.site["limits"] if "queue" not in one]
    assert {(one["last"].time(), one["rule"]) for one in edges} == {
        (time(6), "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"),
        (time(17, 30), "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"),
    }
    assert {one["last"] - one["first"] for one in edges} == {timedelta(seconds=1)}


def test_prime_time_is_reported_where_it_differs() -> None:
    prefix = "nonprimetime_prefix: np_\n"
    loose = import_sched(prefix, holidays=PRIME)
    assert "walltimes over 60.5 h wait without a start" in finding_text(loose, "nonprimetime_prefix")
    spill = import_sched("backfill_prime: true\nprime_spill: 1:00:00\n", holidays=PRIME)
    assert finding_text(spill, "prime_spill").startswith("different: jobs cannot run")
    bad = import_sched(prefix, holidays=PRIME + "saturday 1900 0700\n")
    assert "holidays line 4 is not understood" in finding_text(bad, "nonprimetime_prefix")
    assert "limits" not in bad.site
    assert finding_text(import_sched("by_queue: true\n", holidays=PRIME), "day[weekday]").startswith(
        "not needed: nothing in"
    )


@pytest.mark.parametrize(
    "holidays", ["", "weekday 0600 1730\n", "YEAR 0\nweekday 0600 1730\n", "#YEAR 2026\n"]
)
def test_without_a_year_in_holidays_it_is_always_prime_time(holidays: str) -> None:
    done = import_sched((OPENPBS / "sched_config").read_text(), holidays=holidays)
    assert finding_text(done, "primetime_prefix").startswith("not needed: ")
    assert finding_text(done, "nonprimetime_prefix").startswith("different: the file holidays has")
    assert finding_text(done, "backfill_prime").startswith("not needed: ")


def test_options_of_non_prime_time_become_a_period_of_the_policy() -> None:
    text = "by_queue: False non_prime\nby_queue: True prime\nsort_queues: true\n"
    always = import_sched(text)
    assert always.site["priority"]["queue"] == 10**9
    assert any(one.line == 1 and one.verdict is Verdict.NOT_NEEDED for one in always.findings)
    halves = import_sched(text, holidays=PRIME)
    assert not halves.with_verdict(Verdict.BLOCKER)
    (said,) = (one for one in halves.findings if one.line == 1 and not one.file)
    assert (said.verdict, said.message[:49]) == (
        Verdict.TRANSLATED,
        "in non-prime time: queues do not change the order",
    )
    site = site_policy(ClusterSettings(**settings_in(halves.toml("main"))).site.plain)
    assert site.weights.queue == 10**9
    (period,) = site.plain["periods"]["sets"].values()
    assert period["tables"] == {"priority": {"queue": 0.0}}
    for hour in range(7 * 24):
        moment = datetime(2026, 11, 30, 0, 30, tzinfo=ZoneInfo("Europe/Prague")) + timedelta(hours=hour)
        prime = moment.weekday() < 5 and 6 * 60 <= moment.hour * 60 + moment.minute < 17 * 60 + 30
        second = int(moment.timestamp())
        found = [occurrences(Recurrence.parse(text), second, second + 1) for text in period["windows"]]
        assert any(found) != prime, moment
    assert finding_text(halves, "day[weekday]").startswith("different: ")
    fixed = import_sched('server_dyn_res: "x !/bin/x" non_prime\nby_queue: True prime\n', holidays=PRIME)
    assert "licences cannot differ in non-prime time" in finding_text(fixed, "server_dyn_res")
    share = import_sched("fair_share: True non_prime\nfair_share: False prime\n", holidays=PRIME)
    assert share.site["priority"].get("fair_share") is None
    assert share.site["fair_share"]["levels"] == ["user"]
    assert share.site["periods"]["sets"]["non_prime"]["tables"]["priority"]["fair_share"] > 0
    unread = import_sched(text, holidays=PRIME + "sunday 1900 0700\n")
    (blocker,) = unread.with_verdict(Verdict.BLOCKER)
    assert blocker.message.startswith("the options for prime time would always apply: holidays line 4")
    same = import_sched("by_queue: True prime\nby_queue: True non_prime\nsort_queues: true\n", holidays=PRIME)
    assert not same.with_verdict(Verdict.BLOCKER)


# ---- all else -----------------------------------------------------------------------------------


def test_default_preemption_matters_only_with_express_queues() -> None:
    done = import_sched("preemptive_sched: true ALL\n")
    assert finding_text(done, "preemptive_sched").startswith("different: this is the default")
    own = import_sched('preemptive_sched: true ALL\npreempt_prio: "express_queue, fairshare, normal_jobs"\n')
    assert finding_text(own, "preemptive_sched").startswith(
        "blocker: running jobs are preempted only if the table"
    )
    assert finding_text(own, "preempt_prio").startswith(
        "blocker: schedd has no preemption levels: name the jobs to"
    )
    assert finding_text(
        import_sched("preemptive_sched: false\npreempt_order: SCR\n"), "preempt_order"
    ).startswith("not needed")


@pytest.mark.parametrize(
    ("lines", "choice", "said"),
    [
        ('node_sort_key: "ncpus HIGH" ALL', {"expression": "cpus"}, "translated: "),
        ('node_sort_key: "mem LOW total"', {"expression": "-mem"}, "translated: "),
        ('node_sort_key: "ncpus HIGH unused"', {"arrange": "spread"}, "translated: "),
        ('node_sort_key: "ncpus HIGH assigned"', {"arrange": "pack"}, "translated: "),
        ('node_sort_key: "mem LOW unused"', {"arrange": "least_memory"}, "translated: "),
        ('node_sort_key: "mem HIGH unused"', None, "different: not translated"),
        ('node_sort_key: "sort_priority HIGH" ALL', {"expression": "sort_priority"}, "translated: "),
        ('node_sort_key: "a) HIGH"', None, "different: not translated"),
        ('node_sort_key: "ncpus UP"', None, "different: not translated: UP is neither HIGH nor LOW"),
        ('node_sort_key: "ncpus LOW free"', None, "different: not translated: free is not total, "),
        ('node_sort_key: "ncpus"', None, "different: not translated: a key is a resource, then"),
        ('node_sort_key: "sort_priority LOW unused"', {"expression": "-sort_priority"}, "translated: "),
        (
            'node_sort_key: "ngpus HIGH unused"',
            None,
            "different: not translated: schedd has no order by ngpus",
        ),
        ("smp_cluster_dist: round_robin", {"arrange": "spread"}, "different: node_choice.arrange"),
        ("smp_cluster_dist: pack", None, "not needed: node_choice packs"),
        ("smp_cluster_dist: sideways", None, "different: not translated"),
        ("sort_nodes: true", None, "different: not translated"),
    ],
)
def test_the_order_of_nodes_becomes_a_node_choice(
    lines: str, choice: dict[str, str] | None, said: str
) -> None:
    done = import_sched(f"{lines}\n")
    assert done.site.get("node_choice") == choice
    assert finding_text(done, lines.partition(":")[0]).startswith(said)
    settings_in(done.toml("main"))


def test_of_several_keys_of_nodes_the_first_is_translated() -> None:
    done = import_sched('node_sort_key: "mem HIGH"\nnode_sort_key: "ncpus LOW"\n')
    assert done.site["node_choice"] == {"expression": "mem"}
    (left,) = [one for one in done.findings if one.line == 2]
    assert left.message.startswith("only the first of these keys is translated")


def test_a_second_key_of_nodes_decides_among_equal_ones() -> None:
    keys = 'node_sort_key: "sort_priority HIGH" ALL\nnode_sort_key: "mem LOW"\n'
    done = import_sched(f'{keys}node_sort_key: "ncpus HIGH unused"\n')
    assert done.site["node_choice"] == {"expression": "sort_priority * 1e10 + -mem", "arrange": "spread"}
    assert {one.verdict for one in done.findings if one.line} == {Verdict.TRANSLATED}
    settings_in(done.toml("main"))


def test_keys_of_nodes_keep_their_order() -> None:
    """Points of node_choice count before its arrangement, so an arrangement can only be the second key."""
    total, unused = 'node_sort_key: "mem HIGH total"\n', 'node_sort_key: "ncpus LOW unused"\n'
    done = import_sched(total + unused)
    assert done.site["node_choice"] == {"expression": "mem", "arrange": "pack"}
    assert {one.verdict for one in done.findings if one.line} == {Verdict.TRANSLATED}
    done = import_sched(unused + total)
    assert done.site["node_choice"] == {"arrange": "pack"}
    (left,) = [one for one in done.findings if one.line == 2]
    assert left.message.startswith("only the first of these keys is translated")
    both = import_sched("smp_cluster_dist: round_robin\n" + total)
    assert both.site["node_choice"] == {"arrange": "spread", "expression": "mem"}


@pytest.mark.parametrize(
    ("order", "methods", "said"),
    [
        (
            '"SCR"',
            ["suspend", "checkpoint", "requeue"],
            "translated: preemption.methods = suspend, check",
        ),
        ('"R"', ["requeue"], "translated: preemption.methods = requeue"),
        ('"SD"', ["suspend"], "different: preemption.methods = suspend; preemption never deletes"),
        (
            '"SCR 80 SC"',
            ["suspend", "checkpoint", "requeue"],
            "different: preemption.methods = suspend, che",
        ),
        ('"D"', None, "blocker: preemption never deletes"),
    ],
)
def test_preempt_order_becomes_the_methods_of_preemption(
    order: str, methods: list[str] | None, said: str
) -> None:
    done = import_sched(f"preemptive_sched: true ALL\npreempt_order: {order}\n")
    assert finding_text(done, "preempt_order").startswith(said)
    assert done.site.get("preemption", {}).get("methods") == methods


@pytest.mark.parametrize(
    ("text", "setting", "said"),
    [
        ("strict_fifo: false ALL", "strict_fifo", "different: pbs_sched starts every job that fits now."),
        ("strict_ordering: true", "strict_ordering", "different: jobs are planned in order"),
        ("round_robin: true all", "round_robin", "blocker: queues do not take turns"),
        ("sort_by: no_sort ALL", "sort_by no_sort", "not needed: equal jobs keep their order"),
        ("sort_by: short_walltime_first ALL", "sort_by short_walltime_first", "translated: priority.short"),
        ("sort_by: largest_memory_first ALL", "sort_by largest_memory_first", "blocker: the table priority"),
        ("key: high_priority_first", "key high_priority_first", "not needed: it has an"),
        ("job_sort_key: \"ncpus\" ALL", "job_sort_key ncpus", "blocker: the table priority has no"),
        ("job_sort_formula: \"ncpus*10\"", "job_sort_formula", "blocker: PBS reads it from the server"),
        ("peer_queue: \"workq workq@other\"", "peer_queue", "blocker: schedd does not pull"),
        ('server_dyn_res: "matlab"', "server_dyn_res", "blocker: matlab: not understood"),
        ('server_dyn_res: "mem !/bin/get_mem"', "server_dyn_res", "blocker: mem !/bin/get_mem: not"),
        ("load_balancing: true ALL", "load_balancing", "different: the requests of jobs count"),
        ("half_life: 24:00:00", "half_life", "not needed: fair share is off"),
        ("fair_share: true\nhalf_life: soon", "half_life", "different"),
        ("fair_share: true\nfairshare_decay_factor: 2", "fairshare_decay_factor", "different: '2' is not"),
        ("fair_share: true\nfairshare_entity: shoe", "fairshare_entity", "blocker: fair share has no level"),
        ("fair_share: true\nfairshare_usage_res: ncpus*walltime", "fairshare_usage_res", "translated"),
        ("resources: \"ncpus, mem\"", "resources", "different: schedd also obeys requests for resources"),
        ("resources: \"ncpus\"", "resources", "different: memory: not in the list"),
        ("resource_unset_infinite: \"gpus\"", "resource_unset_infinite", "blocker: "),
        ("frobnication: 9", "frobnication", "different: the documentation of pbs_sched has no"),
        ("!!!", "!!!", "blocker: this line is not"),
        ("sort_by: \"unclosed", "sort_by: \"unclosed", "blocker: this line is not"),
    ],
)  # fmt: skip
def test_options_are_translated(text: str, setting: str, said: str) -> None:
    assert finding_text(import_sched(text + "\n"), setting).startswith(said)


def test_a_resource_program_becomes_a_licence() -> None:
    assert import_directory(OPENPBS).site["licences"] == {
        "matlab": {"command": ["/opt/bin/matlab_free"], "free": True}
    }


def test_durations_have_up_to_four_fields() -> None:
    assert [duration(text) for text in ("90", "1:30", "1:00:00", "2:00:00:00")] == [90, 90, 3600, 172_800]
    with pytest.raises(ValueError, match="not a duration"):
        duration("1:2:3:4:5")


def test_holiday_lines_share_a_finding_with_their_numbers() -> None:
    text = "YEAR 2026\nweekday 0600 1730\nsaturday none all\nsunday none all\n" + "".join(
        f"{day} Jan {day}\n" for day in range(1, 31)
    )
    for config, verdict in (("backfill_prime: true ALL\n", "Different"), ("by_queue: true\n", "Not needed")):
        report = list(import_sched(config, holidays=text).report())
        (row,) = [line for line in report if line.strip().startswith("holidays ")]
        assert "holidays 1-34" in row
        assert "day[…] (34 times)" in row
        head = max(i for i, line in enumerate(report[: report.index(row)]) if not line.startswith(" "))
        assert report[head].startswith(verdict)
