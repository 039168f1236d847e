"""Jobs that a server lists as running and whose nodes do not have them."""

import pytest

from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.diff import diff
from server_adapter.bridge.state import ServerState, StateBuilder
from server_adapter.servers.torque.facts import FACT_PARSERS, node_report
from server_adapter.torque import notation

START = 1_795_814_636


class LostRunsSite:
    """Two jobs that the server lists: one on n1, one on n1 and n2."""

    def __init__(self) -> None:
        self.builder = StateBuilder(FACT_PARSERS)
        self.hosts = {"663[11].srv": "n1/2", "5131.srv": "n1/1+n2/0"}
        self.letter = "R"

    def read(self, after: int, **mom_jobs: str | None) -> ServerState:
        """Read the server; `mom_jobs` are the jobs in each mom's report, made `after` seconds after START.

        None: it made no report.
        """
        nodes = []
        for name, text in mom_jobs.items():
            status = "" if text is None else f"rectime={START + after},varattr=,jobs={text},state=free"
            nodes.append(DescribedObject(3, name, {"state": "free", "np": "4", "status": status}))
        jobs = [
            DescribedObject(
                2,
                job,
                {"job_state": self.letter, "exec_host": hosts, "start_time": str(START), "queue": "batch"},
            )
            for job, hosts in self.hosts.items()
        ]
        *_, state = self.builder.build(server={}, queues=[], nodes=nodes, jobs=jobs)
        assert state is not None
        return state


def lost(state: ServerState) -> set[str]:
    return {name for name, job in state.jobs.items() if job.run_lost}


def test_a_run_is_lost_when_two_reports_of_each_of_its_nodes_lack_it() -> None:
    site = LostRunsSite()
    first = site.read(4000, n1="", n2="")
    assert lost(first) == set()
    assert lost(site.read(4000, n1="", n2="")) == set()  # the same reports again
    second = site.read(4010, n1="", n2="")
    assert lost(second) == site.builder.lost_runs.jobs == {"663[11].srv", "5131.srv"}
    ids = iter(str(number) for number in range(9))
    changes = list(diff(first, second, ids=ids, now=START + 4010, mode="scheduler"))
    assert [one.type for one in changes] == ["job_altered"] * 2
    back = site.read(4020, n1="663[11].srv", n2="")
    assert lost(back) == {"5131.srv"}


@pytest.mark.parametrize(
    "reports",
    [{"n1": "", "n2": "5131.srv"}, {"n1": "5131.srv", "n2": ""}, {"n1": "", "n2": None}],
    ids=["a sister has it", "the first node has it", "a node is silent"],
)
def test_a_job_holds_all_its_nodes_if_one_of_them_may_have_it(reports: dict[str, str | None]) -> None:
    site = LostRunsSite()
    found = [lost(site.read(after, **reports)) for after in (4000, 4010, 4020)]
    assert not any("5131.srv" in one for one in found)


def test_a_report_from_the_first_minute_of_a_run_says_nothing() -> None:
    site = LostRunsSite()
    for after in (-10, 10, 40, 59):
        assert lost(site.read(after, n1="", n2="")) == set()


@pytest.mark.parametrize("letter", ["Q", "S"])
def test_a_queued_or_suspended_job_is_not_lost(letter: str) -> None:
    """The alert `lost_run` was raised for suspended jobs, and the plan gave their cores away for good."""
    site = LostRunsSite()
    site.letter = letter
    for after in (4000, 4010, 4020):
        assert lost(site.read(after, n1="", n2="")) == set()


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("rectime=1,varattr=,jobs=152.srv 663[11].srv,state=free", {"152.srv", "663[11].srv"}),  # 4.2
        (
            "rectime=1,jobs=1.srv(cput=0,mem=1kb,session_id=7) 2.srv(cput=1),state=free",
            {"1.srv", "2.srv"},
        ),  # 6.1
        ("jobs=,rectime=1", set()),
        ("rectime=1,jobs=?", set()),
        ("rectime=1,sessions=7 8,njobs=3", None),
        ("", None),
    ],
)
def test_a_moms_list_of_its_jobs_is_read_in_all_notations(text: str, jobs: set[str] | None) -> None:
    assert notation.mom_jobs(text) == jobs


def test_a_report_without_its_time_is_none() -> None:
    assert node_report({"status": "varattr=,jobs=1.srv"}) is None
    report = node_report({"status": "rectime=7,jobs=1.srv"})
    assert report is not None
    assert (report.at, report.jobs) == (7, frozenset({"1.srv"}))
