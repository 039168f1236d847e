"""Rows of bags: state of their tasks, by cluster and in total, and whether deadlines are kept."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from schedd.federation.api.item_answers import BagShareView, BagView
from schedd.federation.bags.bags import Bag, bag_outcome, count_tasks, unassigned_tasks
from schedd.federation.routing.jobs import FederationJob
from schedd.federation.state.federation_state import FederationState
from schedd.service.read.arrays import compute_spread


def bag_row(federation: FederationState, bag: Bag) -> BagView:
    """Return the row of a bag as its owner sees it."""
    shares = [_share_row(federation, federation.jobs[name]) for name in bag.shares]
    over = bag_outcome(bag, federation.jobs)
    there = [one for one in shares if one.over != "refused"]
    if over == "ended" and any(one.deleted for one in there):
        over = "incomplete"
    left = 0 if bag.cancelled or bag.failed else count_tasks(unassigned_tasks(bag, federation.jobs))
    ends = [one.end for one in there if one.end is not None]
    end = max(ends) if ends and not left and len(ends) == len(there) else None
    firsts = [one.first_end for one in there if one.first_end is not None]
    spread = compute_spread(bag.submitted, min(firsts, default=None), end)
    state = _deadline_state(federation, bag, over, end)
    return BagView(
        id=bag.id,
        owner=bag.owner,
        name=bag.submission.get("attributes", {}).get("Job_Name", ""),
        resources=bag.submission["resources"],
        submitted=bag.submitted,
        tasks=bag.tasks,
        deadline=bag.deadline,
        published_end=bag.offered_end,
        promised_end=bag.promised_end or None,
        end=end,
        first_end=min(firsts, default=None),
        stretch_s=spread.seconds if spread is not None else None,
        stretch=spread.share if spread is not None else None,
        deadline_kept=_meets_deadline(bag, over, end),
        deadline_state=state,
        earliest_deadline=_earliest_deadline(federation, bag) if state == "wished" and not left else None,
        without_cluster=left,
        waiting=sum(one.waiting for one in there),
        running=sum(one.running for one in there),
        ended=sum(one.ended for one in there),
        failed=sum(one.failed for one in there),
        deleted=sum(one.deleted for one in there),
        state=_bag_state(over, there, left),
        over=over,
        over_at=max((federation.jobs[one].over_at for one in bag.shares), default=None) if over else None,
        cancelled=bag.cancelled,
        text=bag.failed or federation.bag_operations.notes.get(bag.id, ""),
        shares=shares,
    )


def _meets_deadline(bag: Bag, over: str, end: int | None) -> bool | None:
    """Return whether all tasks end by the deadline; None if that is unknown, or without a deadline."""
    if bag.failed or over == "incomplete":
        return False
    return None if end is None or bag.cancelled else end <= bag.deadline


def _deadline_state(
    federation: FederationState, bag: Bag, over: str, end: int | None
) -> Literal["", "accepted", "wished", "at_risk", "missed", "kept"]:
    if bag.cancelled:
        return ""
    kept = _meets_deadline(bag, over, end)
    if over and kept is not None:
        return "kept" if kept else "missed"
    if federation.now > bag.deadline:
        return "missed"
    if not bag.promised_end:
        return "wished"
    planned = _planned_ends(federation, bag)
    late = kept is False or any(one is not None and one > bag.deadline for one in planned)
    return "at_risk" if late else "accepted"


def _planned_ends(federation: FederationState, bag: Bag) -> list[int | None]:
    """Return the planned end of each open share, also of clusters whose plan is not shown: only the state of
    the deadline follows from it. None: a cluster has not planned a share.
    """
    found = []
    for job in (federation.jobs[share] for share in bag.shares):
        if not job.over:
            active = job.active
            seen = federation.attempt_statuses(job).get(active.number) if active is not None else None
            found.append(seen.planned_end if seen is not None else None)
    return found


def _earliest_deadline(federation: FederationState, bag: Bag) -> int | None:
    """Return the earliest deadline that the bag keeps by the present plans; None: not known yet."""
    ends = _planned_ends(federation, bag)
    known = [end for end in ends if end is not None]
    earliest = max(known, default=0) + federation.settings.bags.margin
    return earliest if len(known) == len(ends) and earliest > bag.deadline else None


def _bag_state(over: str, shares: Sequence[BagShareView], left: int) -> str:
    if over:
        return over
    if left:
        return "waiting for a cluster"
    return "running" if any(one.running or one.ended for one in shares) else "waiting"


def _share_row(federation: FederationState, job: FederationJob) -> BagShareView:
    """Return the row of one array: its cluster, and its tasks by state."""
    array: str = job.submission["array"]
    first, _, last = array.partition("-")
    tasks = int(last) - int(first) + 1
    (cluster,) = job.clusters
    attempt = job.attempts[-1] if job.attempts else None
    seen = federation.attempt_statuses(job).get(attempt.number) if attempt is not None else None
    known: Mapping[str, Any] = (seen.tasks if seen is not None else None) or {}
    chosen = federation.settings.clusters.get(cluster)
    shown = seen is not None and chosen is not None and chosen.discloses("plan")
    ended, deleted = known.get("ended", 0), known.get("deleted", 0)
    if job.over in ("cancelled", "deleted") and not known:
        deleted = tasks
    offer_end: int = job.submission["offered_end"]
    planned = seen.planned_end if seen is not None and shown else None
    end: int | None = max(filter(None, (planned, known.get("last_end"))), default=offer_end)
    if job.over == "ended":
        end = known.get("last_end") or job.over_at
    elif job.over:
        end = known.get("last_end") or None
    first_end: int | None = known.get("first_end") if shown or ended else None
    return BagShareView(
        job=job.id,
        cluster=cluster,
        server_job=attempt.server_job if attempt is not None else "",
        array=array,
        tasks=tasks,
        phase=attempt.phase if attempt is not None else "",
        state=seen.state if seen is not None else "",
        planned_start=seen.planned_start if seen is not None and shown else None,
        published_end=offer_end,
        end=end,
        first_end=first_end,
        stretch_s=end - first_end if end is not None and first_end is not None else None,
        waiting=0 if job.over else tasks - known.get("running", 0) - ended - deleted,
        running=0 if job.over else known.get("running", 0),
        ended=ended,
        failed=known.get("failed", 0),
        deleted=deleted if job.over != "cancelled" or known.get("ended") else tasks,
        over=job.over,
        text=job.text or (attempt.text if attempt is not None else ""),
    )
