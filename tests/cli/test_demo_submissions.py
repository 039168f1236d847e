"""Parts of the demo that take jobs and mail: options of qsub, and the mailbox."""

import smtplib
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from schedd.cli.demo.mailbox import Mailbox
from schedd.cli.demo.qsub import await_job, make_parser
from schedd.cli.demo.qsub_options import DemoSubmission, SubmissionError, qsub_arguments
from schedd.cli.demo.qsub_options import read_submission as read
from schedd.cli.demo.run import _endless_arrivals
from schedd.cli.demo.steady import SteadyWorkload
from schedd.client import Refused
from server_adapter.emulator import JobOrder
from tests.waits import WAIT_S

SCRIPT = """#!/bin/sh
#PBS -N from-script -l nodes=1:ppn=2
#PBS -l walltime=1:00:00,mem=1gb   # as much as it needs
#PBS -W depend=afterok:12:13.other,on:2

sleep 60
#PBS -N too-late
"""

TODAY = datetime(2026, 11, 27, 20, 0, tzinfo=UTC)


def read_submission(options: Sequence[str], script: str, server: str, name: str = "") -> DemoSubmission:
    return read(options, script, server, name, today=TODAY)


def test_options_override_the_lines_of_the_script() -> None:
    job = read_submission(["-l", "nodes=2:ppn=8", "-A", "physics", "-h", "-p", "-5"], SCRIPT, "demo")
    assert job.name == "from-script"
    assert job.resources == {"nodes": "2:ppn=8", "walltime": "1:00:00", "mem": "1gb"}
    assert job.attributes == {
        "depend": "afterok:12.demo:13.other,on:2",
        "Hold_Types": "u",
        "Account_Name": "physics",
        "Priority": "-5",
    }


def test_a_job_without_a_name_has_that_of_its_script() -> None:
    assert read_submission([], "sleep 1", "demo", "job.sh").name == "job.sh"
    assert read_submission([], "sleep 1", "demo").name == "STDIN"
    assert read_submission(["-N", "x"], "sleep 1", "demo", "job.sh").name == "x"


@pytest.mark.parametrize(
    ("options", "script", "fault"),
    [
        (["-l", "nodes"], "sleep 1", "-l nodes: give NAME=VALUE"),
        (["-t", "all"], "sleep 1", "-t all: give the first and the last index"),
        (["-W", "depend"], "sleep 1", "-W depend: give NAME=VALUE"),
        (["-N", "two words"], "sleep 1", "-N two words: a name has"),
        (["-Y"], "sleep 1", "qsub: unrecognized arguments: -Y"),
        ([], "#PBS -Y\nsleep 1", "line 1 of the script: unrecognized arguments: -Y"),
        (["-I"], "sleep 1", "-I: the demo has no interactive jobs"),
        (["-a", "noon"], "sleep 1", "-a noon: give [[[[CC]YY]MM]DD]hhmm[.SS]"),
        (["-a", "2561"], "sleep 1", "-a 2561: hour must be in"),
        (["-a", "02302130"], "sleep 1", "-a 02302130: day is out of range"),
        ([], '#!/bin/sh\n#PBS -N "x\n', "line 2 of the script: No closing quotation"),
        ([], " \n", "the script is empty"),
    ],
)
def test_invalid_options_are_named_with_their_place(options: list[str], script: str, fault: str) -> None:
    with pytest.raises(SubmissionError) as error:
        read_submission(options, script, "demo")
    assert str(error.value).startswith(fault)


def test_arguments_of_the_command_are_sent_as_options_of_qsub() -> None:
    words = ["-l", "nodes=1", "-l", "walltime=60", "-h", "-t", "1-4", "-p", "-5", "-v", "T=1,U=2"]
    job = read_submission(qsub_arguments(make_parser().parse_args(words)), "sleep $T", "demo")
    assert job == read_submission(words, "sleep $T", "demo")
    assert (job.array, job.variables) == ("1-4", "T=1,U=2")


def test_a_users_own_script_is_accepted_and_options_without_effect_are_named() -> None:
    script = """#!/bin/bash
#PBS -N run -j oe -o out.log -m abe -M ann@x.example
#PBS -S /bin/bash -V
#PBS -W umask=022,depend=afterok:3:4,afterany:5 -n
sleep 60
"""
    job = read_submission([], script, "demo")
    assert job.without_effect == ("-o", "-j", "-m", "-M", "-S", "-V")
    assert job.attributes == {
        "umask": "022",
        "depend": "afterok:3.demo:4.demo,afterany:5.demo",
        "node_exclusive": "True",
    }
    words = ["-joe", "-V", "-z", "-a", "2130", "-n"]
    args = make_parser().parse_args([*words, "job.sh"])
    assert read_submission(qsub_arguments(args), script, "demo") == read_submission(words, script, "demo")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2130", datetime(2026, 11, 27, 21, 30, tzinfo=UTC)),
        ("1930.15", datetime(2026, 11, 28, 19, 30, 15, tzinfo=UTC)),
        ("261930", datetime(2026, 12, 26, 19, 30, tzinfo=UTC)),
        ("310100", datetime(2026, 12, 31, 1, 0, tzinfo=UTC)),
        ("01020300", datetime(2027, 1, 2, 3, 0, tzinfo=UTC)),
        ("2702280300", datetime(2027, 2, 28, 3, 0, tzinfo=UTC)),
        ("202702280300", datetime(2027, 2, 28, 3, 0, tzinfo=UTC)),
    ],
)
def test_a_time_of_a_job_lies_ahead_as_with_qsub(text: str, at: datetime) -> None:
    assert read_submission(["-a", text], "sleep 1", "demo").not_before == int(at.timestamp())


def test_the_prefix_of_directives_can_be_chosen() -> None:
    script = "#PBS -N one\n#JOB -N two\nsleep 1\n"
    assert read_submission(["-C", "#JOB"], script, "demo").name == "two"
    assert read_submission(["-C", ""], script, "demo").name == "STDIN"


def test_mailbox_keeps_messages_newest_first() -> None:
    mailbox = Mailbox(lambda: 1_000)
    try:
        with smtplib.SMTP("127.0.0.1", mailbox.port, timeout=WAIT_S) as relay:
            for subject, text in (("first", ".a line with a dot\nand žluť\n"), ("second", "b\n")):
                message = EmailMessage()
                message["From"], message["To"], message["Subject"] = "s@demo.example", "ann@x", subject
                message.set_content(text)
                relay.send_message(message)
            assert relay.docmd("DATA")[0] == 503
            assert relay.docmd("VRFY ann")[0] == 502
    finally:
        mailbox.close()
    assert [(mail.subject, mail.to, mail.received) for mail in mailbox.mails] == [
        ("second", "ann@x", 1_000),
        ("first", "ann@x", 1_000),
    ]
    assert mailbox.mails[1].text.splitlines() == [".a line with a dot", "and žluť"]


@pytest.mark.parametrize(
    "resources", [{"nodes": "1"}, {"nodes": "1", "walltime": "60"}, {"select": "4:ncpus=16"}, {}]
)
def test_submitted_jobs_do_not_end_the_arrivals(resources: dict[str, str]) -> None:
    waiting = SimpleNamespace(order=JobOrder(user="user1", resources=resources), started=None)
    cluster = SimpleNamespace(now=0.0, live_jobs=lambda: [waiting])
    trial = SimpleNamespace(server=SimpleNamespace(cluster=cluster), feed=SimpleNamespace(begin=0.0))
    found = list(islice(_endless_arrivals(SteadyWorkload(2, 4, 3, 1), cast("Any", trial)), 60))
    assert found[-1].at > 0


def test_qsub_waits_until_the_daemon_knows_the_job() -> None:
    unknown = Refused("unknown-job", 404, "no job")
    client = mock.Mock()
    client.job.side_effect = [unknown, unknown, None]
    pauses: list[float] = []
    await_job(client, "7.demo", pauses.append)
    assert (client.job.call_count, len(pauses)) == (3, 2)
    client.array.side_effect = unknown
    await_job(client, "8[].demo", pauses.append)
    assert sum(pauses) == pytest.approx(0.4 + 10)  # at most
