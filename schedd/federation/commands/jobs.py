"""Commands about the federation's jobs: the option ``--federation``, and ``schedd cancel``."""

import argparse
import os
from collections.abc import Iterator, Sequence

from schedd.cli.user.command_session import run_with_exit_code, show_json
from schedd.cli.user.formatting import (
    format_duration,
    format_rows,
    format_start_cells,
    format_table,
    format_time,
)
from schedd.client import ClientError, find_endpoint
from schedd.client.answers import BagView, FederatedJobView, TransferAttemptView
from schedd.client.json_object import json_members
from schedd.federation.client import FederationClient
from schedd.federation.federated_start import (
    PHASE_NAMES,
    current_attempt,
    describe_state,
    start_facts,
    start_order,
)
from schedd.start_sentence import StartSentence, describe_start, format_near_time


def connect_federation(url: str | None) -> FederationClient:
    """A client for the federation at ``url``, or at SCHEDD_FEDERATION. Raises ClientError."""
    endpoint = find_endpoint()
    named = url or os.environ.get("SCHEDD_FEDERATION", "")
    if not named:
        raise ClientError("the address of the federation is missing: give --url or set SCHEDD_FEDERATION")
    return FederationClient(endpoint._replace(url=named, cluster=""), timeout=60)


def show_queue(found: argparse.ArgumentParser, argv: Sequence[str]) -> int:
    """``showq --federation``: the jobs that are not over."""

    def print_queue(args: argparse.Namespace) -> bool:
        if args.parts or args.queue or args.cluster or args.sort != found.get_default("sort"):
            raise ClientError("--federation can be combined only with -u and --json")
        with connect_federation(args.url) as federation:
            jobs = [
                job for job in federation.jobs(over=False) if args.user in (None, job.owner.partition("@")[0])
            ]
            now = federation.now()
        if args.json:
            show_json({"jobs": jobs})
            return True
        jobs.sort(key=lambda job: (start_order(job, now) is None, start_order(job, now) or 0, job.submitted))
        heads = ("JOB", "OWNER", "CLUSTER", "JOB THERE", "STATE", "LIKELY", "90 % BY", "AT THE LATEST")
        one_realm = len({job.owner.partition("@")[2] for job in jobs}) == 1
        cells = [_job_cells(job, now) for job in jobs]
        if one_realm:  # rows fit into 80 columns
            cells = [(job, owner.partition("@")[0], *rest) for job, owner, *rest in cells]
        print(format_table(heads, cells))
        there = len({job.cluster for job in jobs if job.cluster})
        print(f"\n{len(jobs)} job{'s' * (len(jobs) != 1)} on {there} cluster{'s' * (there != 1)}")
        return True

    return run_with_exit_code(found, print_queue, argv)


def show_job(found: argparse.ArgumentParser, argv: Sequence[str], *, briefly: bool) -> int:
    """``checkjob --federation``, or ``briefly`` ``showstart``: where a job is, and when it starts."""

    def print_job(args: argparse.Namespace) -> bool:
        name: str = args.what or "" if briefly else args.job
        if not name or "@" in name or getattr(args, "request", None) is not None:
            raise ClientError("name a job of the federation; for a new job, use `schedd submit --where`")
        with connect_federation(args.url) as federation:
            job = federation.job(name)
            now = federation.now()
        if args.json:
            show_json(job)
        else:
            print(f"job {job.id}{' ' + job.name if job.name else ''}: {job.owner}\n")
            print(format_rows(list(_job_rows(job, now))))
            if not briefly:
                print("\n" + _attempts_table(job, now))
        sentence = describe_federated_start(job, now)
        return sentence is not None and sentence.certainty != "unknown"

    return run_with_exit_code(found, print_job, argv)


def cancel_jobs(found: argparse.ArgumentParser, argv: Sequence[str]) -> int:
    """``schedd cancel``: cancel each job; the first failure sets the exit code."""
    codes = []
    for name in found.parse_args(argv).jobs:

        def cancel_job(args: argparse.Namespace, name: str = name) -> bool:
            with connect_federation(args.url) as federation:
                job = federation.cancel(name)
            if args.json:
                show_json(job)
            else:
                done = f"it had {job.over}" if job.over and not job.cancelled else "withdrawn"
                print(f"job {job.id}: {done}")
            return True

        codes.append(run_with_exit_code(found, cancel_job, argv))
    return next((code for code in codes if code), 0)


def describe_federated_start(job: FederatedJobView, now: int) -> StartSentence | None:
    """The sentence about a job's start; None for a job that is over, or has no cluster that discloses it."""
    facts = start_facts(job)
    return describe_start(facts, now) if facts is not None else None


def _job_cells(job: FederatedJobView, now: int) -> tuple[str, ...]:
    sentence = describe_federated_start(job, now)
    start = (
        format_start_cells(sentence, now, planned=True) if sentence is not None else ("not known", "-", "-")
    )
    return (job.id, job.owner, job.cluster or "-", job.server_job or "-", describe_state(job), *start)


def _job_rows(job: FederatedJobView, now: int) -> Iterator[tuple[str, str]]:
    yield "request", ", ".join(f"{name}={value}" for name, value in sorted(job.resources.items()))
    yield (
        "submitted",
        f"{format_time(job.submitted, now)}, {format_duration(max(0, now - job.submitted))} ago",
    )
    yield "state", describe_state(job)
    if job.over:
        if job.over_at is not None:
            yield "ended", format_time(job.over_at, now)
        if job.exit_status is not None:
            yield "exit status", str(job.exit_status)
    if job.deadline is not None and job.deadline_state:
        yield "deadline", f"{format_time(job.deadline, now)}, {describe_deadline(job, now)}"
    if job.cluster:
        there = f"as job {job.server_job}" if job.server_job else "its job number there is not known yet"
        yield "cluster", f"{job.cluster}, {there}"
    if job.booking:
        yield "booking", job.booking
    sentence, one = describe_federated_start(job, now), current_attempt(job)
    if sentence is not None and one is not None:
        yield "start", sentence.text(lambda moment: format_near_time(moment, now))
        if one.planned_start is not None and one.state == "planned":
            yield (
                "planned",
                f"{format_time(one.planned_start, now)}, if the jobs ahead use their full walltimes",
            )
    elif not job.over and one is None:
        yield "start", "not known: the job has no cluster yet"
    elif not job.over and one is not None:
        yield "start", f"not known: {explain_unknown_start(one)}"
    if one is not None and one.dashboard:
        yield "page", one.dashboard
    if job.tasks:
        yield "array", _array_summary(job)
    if job.moves:
        yield "moved", f"{job.moves} times from one cluster to another"
    if job.text:
        yield "why", job.text
    if one is not None and one.refusal:
        yield "refused", one.refusal


def explain_unknown_start(one: TransferAttemptView) -> str:
    """Return why the start of a job at its cluster is not known."""
    if not one.state:
        return "the cluster has not reported the job yet"
    if one.state == "planned":
        return "the cluster does not disclose it"
    return "the cluster had no start for it when it was last asked"


def describe_deadline(item: FederatedJobView | BagView, now: int) -> str:
    """Return the state of a deadline, or the answer to a refused one."""
    if item.earliest_deadline is not None:
        return f"refused; the earliest possible one is {format_time(item.earliest_deadline, now)}"
    return item.deadline_state.replace("_", " ") or "-"


def _array_summary(job: FederatedJobView) -> str:
    """Return the indices of an array, and the number of its jobs by state."""
    counts = job.standing
    if counts is None:
        return job.tasks
    known = json_members(counts)
    states = ("planned", "running", "ended", "failed", "deleted")
    words = [f"{known[name]} {name}" for name in states if known[name]]
    if counts.first_end is not None and counts.last_end is not None and job.over:
        words.append(f"{format_duration(counts.last_end - counts.first_end)} from the first end to the last")
    return ", ".join((f"{job.tasks}: {counts.tasks} jobs", *words))


def _attempts_table(job: FederatedJobView, now: int) -> str:
    lines = [
        (
            str(one.number),
            one.cluster,
            one.server_job or "-",
            PHASE_NAMES.get(one.phase, one.phase),
            format_time(one.since, now),
            one.text or one.why,
        )
        for one in job.attempts
    ]
    return format_table(("COPY", "CLUSTER", "JOB THERE", "STATE", "SINCE", "WHY"), lines, last=20)
