"""``schedd import --server``: the attributes of pbs_server, read over its own protocol."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.cli.importing.formula import UnsupportedFormulaError, formula_weights
from schedd.cli.importing.result import ImportResult, Verdict
from schedd.cli.importing.server_settings import ServerObject, import_server
from schedd.cli.main import main
from tests.cli.import_helpers import settings_in

CAPTURES = Path(__file__).parents[3] / "shared/protocols/captures/openpbs/status-attributes.txt"


@contextmanager
def emulated(family: str) -> Iterator[str]:
    """An emulated pbs_server, as a process; its address."""
    command = [sys.executable, "-c", "import sys; from schedd.cli.main import main; sys.exit(main())"]
    arguments = [
        "emulate",
        "--version",
        {"torque": "6.1"}.get(family, family),
        "--nodes",
        "4:ppn=4:mem=16gb",
        "--port",
        "0",
    ]
    if family == "torque":
        arguments += ["--scheduler-port", "9"]
    with subprocess.Popen(
        [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        try:
            yield said.split(" on ")[1].split()[0].rstrip(",;:")
        finally:
            process.terminate()


def import_objects(*objects: ServerObject, openpbs: bool = True) -> ImportResult:
    done = ImportResult()
    import_server(objects, done, openpbs=openpbs)
    return done


def server(**values: str) -> ServerObject:
    return ServerObject("server", "pbs", values)


def attribute_finding(done: ImportResult, attribute: str) -> tuple[Verdict, str]:
    (found,) = [
        (one.verdict, one.message) for one in done.findings if one.setting.partition(" ")[0] == attribute
    ]
    return found


# ---- over the wire ------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["torque", "openpbs"])
def test_a_server_is_read_over_its_protocol(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "sched_config"
    config.write_text('by_queue: true ALL\nstrict_ordering: false ALL\njob_sort_key: "job_priority HIGH"\n')
    with emulated(family) as address:
        asks = ["--server", address, "--family", family, "--auth", "none"]
        assert main(["import", *asks]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"# From {address}, by `schedd import`: 0 blocker")
        for words in ("server  scheduling = ", "queue batch  started = True", "total_jobs = 0"):
            assert words in " ".join(err.split("  ")).replace("   ", "  ") or words.split("  ")[-1] in err
        assert "not known to this import" not in err
        assert ("scheduler default" in err) == (family == "openpbs")
        assert main(["import", str(config), *asks]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"# From sched_config and {address}, by")
        assert settings_in(out)["site"]["priority"]["queue"] == 1_000_000_000
        assert "see `qmgr" not in err


def test_unreachable_servers_and_invalid_addresses_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--server", "127.0.0.1:1", "--auth", "none"]) == 2
    assert "schedd import: --server 127.0.0.1:1: " in capsys.readouterr().err
    assert main(["import", "--server", "a:b:c"]) == 2
    assert "HOST or HOST:PORT" in capsys.readouterr().err
    assert main(["import"]) == 2
    assert "name a file, or a server with --server" in capsys.readouterr().err


@pytest.mark.skipif(not CAPTURES.exists(), reason="the captured attributes of a real server are not here")
def test_every_attribute_on_a_real_server_has_a_finding() -> None:
    objects, kind = [], ""
    values: dict[str, str] = {}
    for line in CAPTURES.read_text().splitlines():
        if not line.startswith("("):
            kind = {"SERVER": "server", "SCHED": "scheduler"}.get(line.split()[0] if line.split() else "", "")
            kind = "queue" if "QUEUE" in line else kind
            values = {}
            if kind:
                objects.append(ServerObject(kind, "one", values))
        elif kind:
            name, resource, value = eval(line)
            values[f"{name}.{resource}" if resource else name] = value
    assert {one.kind for one in objects} >= {"server", "scheduler"}
    done = import_objects(*objects)
    assert len(done.findings) == sum(len(one.values) for one in objects)
    assert not [one for one in done.findings if "not known" in one.message]
    assert not done.with_verdict(Verdict.BLOCKER)


# ---- attribute by attribute ---------------------------------------------------------------------


def test_a_formula_that_is_a_weighted_sum_becomes_a_priority() -> None:
    done = import_objects(server(job_sort_formula="10*queue_priority + eligible_time/3600 - 2*ncpus + 7"))
    assert done.site["priority"] == {"queue": 10.0, "waiting": 1.0, "size": -2.0}
    assert attribute_finding(done, "job_sort_formula")[0] is Verdict.TRANSLATED
    assert settings_in(done.toml("main"))["site"]["priority"]["size"] == -2


def test_the_formula_replaces_sort_keys_in_the_file() -> None:
    done = ImportResult()
    done.table("priority").update(queue=1_000_000_000, short=5.0)
    import_server([server(job_sort_formula="job_priority")], done, openpbs=True)
    assert done.site["priority"] == {"queue": 0, "wish": 1.0}


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        ("walltime*ncpus", "product of two terms"),
        ("queue_priority + pow(ncpus, 2)", "no weighted sum"),
        ("myresource", "no priority by myresource"),
        ("1/ncpus", "no term divided by a number"),
        ("ncpus/0", "no term divided by a number"),
        ("queue_priority +", "cannot be read"),
        ("(" * 500 + "ncpus" + ")" * 500, "cannot be read"),
        ("-" * 5_000 + "ncpus", ""),
        ("True*ncpus", "product of two terms"),
        ("'a'*ncpus", "product of two terms"),
    ],
)
def test_unsupported_formulas_are_blockers_with_a_reason(formula: str, why: str) -> None:
    done = import_objects(server(job_sort_formula=formula))
    verdict, words = attribute_finding(done, "job_sort_formula")
    assert verdict is Verdict.BLOCKER
    assert why in words
    assert "priority" not in done.site


_NAMES = {"queue_priority": ("queue", 1.0), "job_priority": ("wish", 1.0), "ncpus": ("size", 1.0)}


@given(st.lists(st.tuples(st.sampled_from(sorted(_NAMES)), st.integers(-50, 50)), min_size=1, max_size=5))
def test_translated_weights_preserve_the_formula_order(parts: list[tuple[str, int]]) -> None:
    formula = " + ".join(f"({times}) * {name}" for name, times in parts)
    weights = formula_weights(formula)
    for values in ({"queue_priority": 3, "job_priority": -5, "ncpus": 7}, dict.fromkeys(_NAMES, 11)):
        wanted = eval(formula, {}, values)
        got = sum(weights.get(term, 0) * values[name] * of for name, (term, of) in _NAMES.items())
        assert got == pytest.approx(wanted)


@given(st.text(max_size=60))
def test_malicious_formulas_are_harmless(text: str) -> None:
    with suppress(UnsupportedFormulaError):
        formula_weights(text)


def test_huge_weights_are_scaled_down_together() -> None:
    done = import_objects(server(job_sort_formula="1e12*queue_priority + 1e11*ncpus"))
    assert done.site["priority"] == pytest.approx({"queue": 1e9, "size": 1e8})
    settings_in(done.toml("main"))


def test_node_groups_become_node_sets() -> None:
    asks = {"node_group_enable": "True", "node_group_key": "switch"}
    strict = ServerObject("scheduler", "default", {"do_not_span_psets": "True"})
    done = import_objects(server(**asks), strict)
    assert settings_in(done.toml("main"))["site"]["node_sets"] == {"by": "switch", "strict": True}
    done = import_objects(server(**asks | {"node_group_enable": "False"}), strict)
    assert "node_sets" not in done.site
    assert attribute_finding(done, "node_group_key") == (Verdict.NO_MATTER, "node_group_enable is off")
    done = import_objects(server(**asks | {"node_group_key": "switch,rack"}))
    assert attribute_finding(done, "node_group_key")[0] is Verdict.BLOCKER
    done = import_objects(
        server(node_group_enable="True"), ServerObject("queue", "q", {"node_group_key": "switch"})
    )
    assert attribute_finding(done, "node_group_key")[0] is Verdict.BLOCKER


def test_server_limits_are_read_and_invalid_limits_are_blockers() -> None:
    done = import_objects(server(**{"max_run": "[u:PBS_GENERIC=4]", "max_run_res.ncpus": "[u:ann=lots]"}))
    assert attribute_finding(done, "max_run")[0] is Verdict.TRANSLATED
    assert attribute_finding(done, "max_run_res.ncpus")[0] is Verdict.BLOCKER
    done = import_objects(server(max_running="10", max_user_run="x"), openpbs=False)
    assert attribute_finding(done, "max_running")[0] is Verdict.TRANSLATED
    assert attribute_finding(done, "max_user_run")[0] is Verdict.BLOCKER


def test_an_express_queue_is_a_blocker() -> None:
    queues = [
        ServerObject("queue", name, {"Priority": much}) for name, much in (("express", "150"), ("batch", "5"))
    ]
    done = import_objects(*queues, ServerObject("scheduler", "default", {"preempt_queue_prio": "150"}))
    (blocker,) = done.with_verdict(Verdict.BLOCKER)
    assert (blocker.file, blocker.setting) == ("queue express", "Priority = 150")
    done = import_objects(*queues, ServerObject("scheduler", "default", {"preempt_queue_prio": "200"}))
    assert not done.with_verdict(Verdict.BLOCKER)


def test_disabled_and_unknown_attributes_are_reported() -> None:
    done = import_objects(server(job_exclusive_on_use="False", frobnicate="1"), openpbs=False)
    assert attribute_finding(done, "job_exclusive_on_use") == (Verdict.NO_MATTER, "it is off")
    assert attribute_finding(done, "frobnicate")[0] is Verdict.DIFFERS
    assert (
        attribute_finding(import_objects(server(job_exclusive_on_use="True")), "job_exclusive_on_use")[0]
        is Verdict.BLOCKER
    )


def test_the_report_has_locations() -> None:
    done = import_objects(server(scheduling="True"), ServerObject("queue", "batch", {"started": "True"}))
    report = "\n".join(done.report())
    assert "  server" in report
    assert "queue batch  started = True" in report
    assert tomllib.loads(done.toml("main")) == {}
