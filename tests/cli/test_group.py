"""Many short tasks in few jobs: merged tasks, and that each task's status and output are kept."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.cli.main import main
from schedd.client.task_grouping import GroupedTask, Grouping, GroupingError, group_tasks
from tests.waits import WAIT_S

FAKE_QSUB = """#!/bin/sh
# Runs the job at once, and answers with its id as a server would.
[ "$1" = -W ] && echo "$2" >> "$QSUB_LOG" && shift 2
sh "$1" > /dev/null 2>&1 || :
echo "$1.server"
"""


def longest_path(tasks: dict[str, GroupedTask], names: list[str] | None = None) -> int:
    """Return the length of the longest path, computed recursively."""
    known: dict[str, int] = {}

    def end(name: str) -> int:
        if name not in known:
            known[name] = tasks[name].seconds + max((end(one) for one in tasks[name].after), default=0)
        return known[name]

    return max(end(name) for name in names or tasks)


def grouped_length(found: Grouping, tasks: dict[str, GroupedTask]) -> int:
    """Return the length of the longest path of the grouped jobs."""
    of = {name: i for i, names in enumerate(found.jobs) for name in names}
    ends: dict[int, int] = {}
    for i, names in enumerate(found.jobs):
        heads = {of[one] for name in names for one in tasks[name].after} - {i}
        assert heads == set(found.waits[i])
        assert all(head < i for head in heads), "jobs come after those that they wait for: no circle"
        ends[i] = sum(tasks[name].seconds for name in names) + max((ends[head] for head in heads), default=0)
    return max(ends.values())


@st.composite
def graphs(draw: st.DrawFn) -> list[GroupedTask]:
    n = draw(st.integers(1, 14))
    found = []
    for i in range(n):
        heads = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        asks = draw(st.sampled_from(["", "", "", "1:io"]))
        found.append(
            GroupedTask(f"t{i}", draw(st.integers(1, 50)), asks, tuple(f"t{k}" for k in sorted(heads)))
        )
    return draw(st.permutations(found))


@settings(max_examples=300, deadline=None)
@given(graphs(), st.integers(1, 60), st.integers(1, 200), st.none() | st.integers(1, 5))
def test_grouping_keeps_the_length_and_all_tasks_without_cycles(
    tasks: list[GroupedTask], short: int, most: int, at_once: int | None
) -> None:
    found = group_tasks(tasks, short, most, at_once)
    by_name = {task.name: task for task in tasks}
    assert sorted(name for names in found.jobs for name in names) == sorted(by_name)
    before = longest_path(by_name)
    assert found.length_before == before
    assert found.length == grouped_length(found, by_name) <= found.most
    if at_once is None:
        assert found.length == before
    for names in found.jobs:
        assert len({by_name[name].asks for name in names}) == 1
        if len(names) > 1:
            assert sum(by_name[name].seconds for name in names) <= most
            assert min(by_name[name].seconds for name in names) < short
        order = {name: i for i, name in enumerate(names)}
        for name in names:
            assert all(order[one] < order[name] for one in by_name[name].after if one in order)


def test_a_chain_with_short_tasks_becomes_a_single_job() -> None:
    """As the rule is printed in the thesis nothing on the longest path would be merged."""
    chain = [GroupedTask(f"t{i}", 10, after=(f"t{i - 1}",) if i else ()) for i in range(5)]
    found = group_tasks(chain, 60, 3600)
    assert (found.jobs, found.length) == ((("t0", "t1", "t2", "t3", "t4"),), 50)


def test_an_array_is_grouped_evenly_within_the_allowed_time() -> None:
    array = [GroupedTask(f"t{i}", 60) for i in range(100)]
    assert len(group_tasks(array, 600, 7200).jobs) == 100
    found = group_tasks(array, 600, 7200, at_once=10)
    assert (len(found.jobs), found.length_before, found.length, found.most) == (10, 60, 600, 660)
    assert len(group_tasks(array, 600, 300, at_once=10).jobs) == 20, "none longer than allowed"


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([GroupedTask("a", 1), GroupedTask("a", 1)], "two tasks 'a'"),
        ([GroupedTask("a", 1, after=("b",))], "'a' is to run after 'b'"),
        ([GroupedTask("a", 0)], "takes 0 s"),
        ([GroupedTask("a", 1, after=("b",)), GroupedTask("b", 1, after=("a",))], "in a circle: a, b"),
    ],
)
def test_invalid_tasks_are_refused(tasks: list[GroupedTask], words: str) -> None:
    with pytest.raises(GroupingError, match=words):
        group_tasks(tasks, 60, 60)


# ---- the command --------------------------------------------------------------------------------

TASKS = """name,walltime,command,after,nodes
prepare,30s,echo ready,,
sim[1-6],1m,"test {} != 4 && echo 'run, {}'; test {} != 4",prepare,
post[1-6],10s,"cat results/sim.{}.out; echo oops >&2",sim.{},
collect,20s,echo all,post,
note,5s,echo noted,prepare,
"""


def run_group(tmp_path: Path, text: str = TASKS, *more: str) -> tuple[int, Path]:
    source = tmp_path / "tasks.csv"
    source.write_text(text, encoding="utf-8")
    return main(["group", str(source), "--out", str(tmp_path / "out dir"), *more]), tmp_path / "out dir"


def run_grouped_jobs(out: Path, tmp_path: Path) -> None:
    """Submit all, each job being run at once."""
    qsub = tmp_path / "bin" / "qsub"
    qsub.parent.mkdir(exist_ok=True)
    qsub.write_text(FAKE_QSUB)
    qsub.chmod(0o755)
    path = {"PATH": f"{qsub.parent}:/usr/bin:/bin", "QSUB_LOG": str(tmp_path / "log")}
    subprocess.run(["sh", str(out / "submit.sh")], env=path, check=True, capture_output=True, timeout=WAIT_S)


def test_tasks_preserve_results_and_successors_after_a_failure_are_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run_group(tmp_path, TASKS, "--at-once", "2")
    assert code == 0
    said = capsys.readouterr().out
    jobs = sorted(path.name for path in out.glob("job*.sh"))
    assert said.startswith(f"15 tasks in {len(jobs)} jobs; the longest chain takes ")
    assert len(jobs) < 15
    run_grouped_jobs(out, tmp_path)
    status = {path.stem: path.read_text().strip() for path in (out / "results").glob("*.status")}
    assert len(status) == 15
    assert {name for name, found in status.items() if found == "0"} == {
        "prepare", "note", *(f"{kind}.{i}" for kind in ("sim", "post") for i in (1, 2, 3, 5, 6))
    }  # fmt: skip
    assert (status["sim.4"], status["post.4"], status["collect"]) == ("1", "skipped", "skipped")
    assert (out / "results" / "post.3.out").read_text() == "run, 3\n"
    assert (out / "results" / "post.3.err").read_text() == "oops\n"
    assert "depend=afterany:job" in (tmp_path / "log").read_text()


def test_a_repeated_job_continues_and_tasks_have_their_own_walltimes(tmp_path: Path) -> None:
    text = "name,walltime,command,after\na,10s,echo once >> twice,\nb,1s,sleep 30,a\nc,10s,echo c,a\n"
    code, out = run_group(tmp_path, text)
    assert code == 0
    run_grouped_jobs(out, tmp_path)
    assert (out / "results" / "b.status").read_text() == "124\n"
    run_grouped_jobs(out, tmp_path)
    assert (out / "twice").read_text() == "once\n"
    assert (out / "results" / "c.status").read_text() == "0\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,command\na,b\n", "line 1: it must name the columns"),
        ("name,walltime,command\n", "it has no task"),
        ("name,walltime,command\na,soon,b\n", "line 2: 'soon' is no time"),
        ("name,walltime,command\na b,1m,c\n", "line 2: name 'a b'"),
        ("name,walltime,command\na,1m,echo 1, 2\n", "line 2: it has not as many fields"),
        ("name,walltime,command\na[5-1],1m,c\n", "line 2: a[5-1]: the last number"),
        ("name,walltime,command\na,1m,\n", "line 2: it has no command"),
        ("name,walltime,command,nodes\na,1m,b,1 -l x\n", "line 2: nodes '1 -l x'"),
        ("name,walltime,command,after\na,1m,b,c\n", "'a' is to run after 'c'"),
    ],
)
def test_invalid_task_file_writes_nothing(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run_group(tmp_path, text)
    assert (code, out.exists()) == (2, False)
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_existing_output_directory_is_left_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out dir").mkdir()
    assert run_group(tmp_path)[0] == 2
    assert "is there already" in capsys.readouterr().err
    assert list((tmp_path / "out dir").iterdir()) == []


def test_group_command_loads_no_numeric_library() -> None:
    code = "import sys, schedd.cli.user.group; print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"
