"""State and start of a federated job, in the words of commands and pages."""

from typing import TYPE_CHECKING, Final

from schedd.start_sentence import StartFacts, describe_start

if TYPE_CHECKING:
    from schedd.client.answers import ClusterWhatIf, FederatedJobView, TransferAttemptView

PHASE_NAMES: Final = {
    "submitting": "submitting",
    "held": "held",
    "releasing": "being released",
    "released": "queued",
    "withdrawing": "being withdrawn",
    "withdrawn": "withdrawn",
    "refused": "refused",
    "ended": "ended",
}
"""Names of an attempt's phases, where its cluster reports no state."""


def current_attempt(job: "FederatedJobView") -> "TransferAttemptView | None":
    """Return the last attempt at the cluster that has the job."""
    there = [one for one in job.attempts if one.cluster == job.cluster]
    return there[-1] if there else None


def describe_state(job: "FederatedJobView") -> str:
    """Return the state of a job in a few words."""
    one = current_attempt(job)
    if job.over:
        return job.over
    if one is None:
        return "waits for a cluster"
    return one.state or PHASE_NAMES.get(one.phase, one.phase)


def start_order(job: "FederatedJobView", now: int) -> int | None:
    """Return the start by which lists are ordered: the likely one, else the planned one; None if unknown."""
    one = current_attempt(job)
    if one is None or job.over:
        return None
    if one.state in ("running", "starting"):
        return one.started or 0
    facts = start_facts(job)
    likely = describe_start(facts, now).likely if facts is not None else None
    return likely if likely is not None else one.planned_start


def start_facts(job: "FederatedJobView") -> StartFacts | None:
    """Return the known facts of a job's start; None if it is over, or its cluster does not disclose it."""
    one = current_attempt(job)
    if one is None or job.over or (one.planned_start is None and one.state not in ("running", "starting")):
        return None
    return StartFacts(
        state=one.state or "planned",
        started=one.started,
        planned=one.displayed_start if one.displayed_start is not None else one.planned_start,
        expected=one.expected_start,
        expected_by=one.expected_by,
        expected_as_of=one.expected_as_of,
        promised=one.promised_start,
        at_risk=one.at_risk,
        predicted=one.predicted,
        stopped=one.starts_stopped,
    )


def offered_start_facts(answer: "ClusterWhatIf") -> StartFacts:
    """Return what a cluster's plan says of the start of a hypothetical job."""
    return StartFacts(
        planned=answer.start,
        expected=answer.expected_start,
        expected_by=answer.expected_by,
        expected_as_of=answer.expected_as_of,
        promised=answer.promised_start,
        predicted=answer.predicted,
        stopped=answer.starts_stopped,
    )
