"""Bags over HTTP: equal tasks with a deadline; offered by plans, accepted, shown, cancelled."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Final, Literal

from pydantic import Field
from starlette.concurrency import run_in_threadpool

from schedd.api.problems import ProblemError, invalid_problem
from schedd.api.routes import RouteTable
from schedd.federation.api.app import Caller, LeadingFederation, claimed_users, resolve_owner, resolve_users
from schedd.federation.api.audited_route import FederationRoute
from schedd.federation.api.bag_rows import bag_row
from schedd.federation.api.item_access import acting_owner, find_item, require_write_role, visible_items
from schedd.federation.api.item_answers import BagOfferView, BagsView, BagView
from schedd.federation.api.requests import BagRequest, JobScript
from schedd.federation.bags.bags import Bag
from schedd.federation.bags.issued_offers import BagOffer
from schedd.federation.bags.offers import TaskSplit
from schedd.federation.events import BagSpecification
from schedd.federation.state.bag_operations import OffersOutdatedError
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.bag_offers import collect_offers, offered_task_counts, share_ends, split_offers
from schedd.federation.workers.cluster_worker import connect_cluster
from schedd.service.access.roles import Bearer
from schedd.start_sentence import format_utc

router = RouteTable(route_class=FederationRoute)
_READ_PROBLEMS: Final = ("no-token", "not-ready", "invalid")
_NEW_OFFER_HINT: Final = "POST /v1/federation/bag-offers makes a new offer"
_RETRY_HEADERS: Final = {"Retry-After": "5"}


class AcceptedBagOffer(JobScript):
    """A bag submitted by an issued ``offer``, which has everything but the script."""

    offer: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$", examples=["3f0c5b1e9a7d2c46"])]
    owner: Annotated[str, Field(description="Only an admin may name another user.", max_length=200)] = ""


class NewBag(BagRequest, JobScript):
    """A bag that is offered and submitted in one request."""

    late: Annotated[
        bool,
        Field(description="Submit it even if it ends after its deadline; it then ends as early as possible."),
    ] = False


# ---- offers ---------------------------------------------------------------------------------------


@router.post("/v1/federation/bag-offers", *_READ_PROBLEMS, *("not-allowed", "bad-request", "too-large"))
async def _make_offer(federation: LeadingFederation, caller: Caller, body: BagRequest) -> BagOfferView:
    """How would a bag of tasks be divided, to end by its deadline or as early as possible?

    Nothing is submitted. The plan of each cluster answers how many tasks it ends by which time.
    `POST /v1/federation/bags` accepts the offer until it expires.
    """
    owner = resolve_owner(federation, caller, body)
    found = await run_in_threadpool(
        _issue_offer, federation, owner, resolve_users(federation, caller, owner), body
    )
    return offer_row(federation, found)


def _issue_offer(
    federation: FederationState, owner: str, users: Mapping[str, str], body: BagRequest
) -> BagOffer:
    """Query the plans and keep the offer that is issued. Raises ProblemError and StoreError."""
    found = _request_offers(federation, owner, users, body)
    federation.bag_operations.issue_offer(found)
    return found


def _request_offers(
    federation: FederationState, owner: str, users: Mapping[str, str], body: BagRequest
) -> BagOffer:
    """Query the plans for a new offer. Raises ProblemError."""
    terms = BagSpecification(
        resources=body.requested_resources,
        walltime=body.walltime,
        cpu_seconds=body.cpu_seconds,
        tasks=body.tasks,
        deadline=body.deadline,
        clusters=tuple(body.clusters),
        queues=body.queues,
        balance=body.balance.value,
    )
    if body.deadline <= federation.now:
        what = f"the deadline, {format_utc(body.deadline)}, is past: it is {format_utc(federation.now)}"
        raise invalid_problem("body.deadline", what)
    names = body.clusters or tuple(federation.settings.clusters)
    found = collect_offers(
        federation,
        owner,
        users,
        terms,
        dict.fromkeys(names, offered_task_counts(body.tasks)),
        connect_cluster,
    )
    try:
        split = split_offers(federation, found, body.tasks, body.deadline, body.balance)
    except ValueError as error:
        raise invalid_problem("body.balance", str(error), "none, offers") from None
    ends = share_ends(found.offers, split) if split is not None else {}
    return federation.bag_operations.create_offer(
        owner,
        terms,
        split=split,
        ends=ends,
        plans=found.plans,
        offers=found.offers,
        whys=found.whys,
        wished=found.wished,
    )


def offer_row(federation: FederationState, one: BagOffer) -> BagOfferView:
    """An offer as shown to the caller."""
    state: Literal["", "accepted", "wished"] = ""
    earliest = None
    if one.split is not None:
        guaranteed = not one.split.shares.keys() & set(one.wished)
        state = "accepted" if one.split.met and guaranteed else "wished"
        if guaranteed and not one.split.met:
            earliest = _earliest_deadline(federation, one.split)
    return BagOfferView(
        id=one.id,
        expires=one.expires,
        tasks=one.asked.tasks,
        deadline=one.asked.deadline,
        deadline_state=state,
        earliest_deadline=earliest,
        offers=one.offers,
        split=one.split,
        plans=dict(one.plans),
        why=dict(one.whys or {}),
    )


def _earliest_deadline(federation: FederationState, split: TaskSplit) -> int:
    """Return the first deadline that the split keeps."""
    return split.end + federation.settings.bags.margin


# ---- bags -----------------------------------------------------------------------------------------


@router.post(
    "/v1/federation/bags",
    *_READ_PROBLEMS,
    *("not-allowed", "bad-request", "too-large"),
    "no-room",
    "moved-on",
    status_code=201,
)
async def _submit_bag(
    federation: LeadingFederation, caller: Caller, body: AcceptedBagOffer | NewBag
) -> BagView:
    """Submit a bag to the federation, by an issued `offer` or with an offer made and accepted at once. Each
    cluster gets its share as job arrays. The response comes when the bag is durable.
    """
    if isinstance(body, AcceptedBagOffer):
        owner = acting_owner(caller, body.owner)
        bag = await run_in_threadpool(_accept_offer, federation, caller, owner, body)
    else:
        owner = resolve_owner(federation, caller, body)
        bag = await run_in_threadpool(_request_and_accept, federation, caller, owner, body)
    return bag_row(federation, bag)


def _accept_offer(federation: FederationState, caller: Bearer, owner: str, body: AcceptedBagOffer) -> Bag:
    known = federation.bags.by_owner_key(owner, body.key)
    if known is not None:
        return known
    try:
        offer = federation.bag_operations.offers.find(body.offer, owner)
    except LookupError as error:
        raise ProblemError("moved-on", str(error), hint=_NEW_OFFER_HINT) from None
    if offer.split is None:
        raise ProblemError(
            "no-room",
            f"offer {offer.id} has too little capacity for {offer.asked.tasks} tasks",
            hint=_NEW_OFFER_HINT,
        )
    ends = {
        **offer.ends,
        **_recheck_ends(federation, owner, resolve_users(federation, caller, owner), offer, offer.split),
    }
    return _create_bag(federation, caller, owner, body, offer.asked, offer.split, ends, offer=offer.id)


def _recheck_ends(
    federation: FederationState, owner: str, users: Mapping[str, str], offer: BagOffer, split: TaskSplit
) -> dict[str, int]:
    """The end of each share whose cluster has a newer plan by now. Raises ProblemError if one is too late."""
    moved = [name for name in split.shares if federation.generations.get(name) != offer.plans.get(name)]
    found = collect_offers(
        federation,
        owner,
        users,
        offer.asked,
        {name: (split.shares[name],) for name in moved},
        connect_cluster,
    )
    ends = {one.provider: one.end for one in found.offers}
    latest = offer.asked.deadline - federation.settings.bags.margin if split.met else split.end
    for name in moved:
        if name not in ends:
            why = found.whys.get(name, "it no longer offers anything")
        elif ends[name] > latest:
            late = ends[name] - latest
            why = f"its plan has changed: {split.shares[name]} tasks would now end {late} s too late there"
        else:
            continue
        raise ProblemError(
            "moved-on", f"offer {offer.id} is no longer valid: {name}: {why}", hint=_NEW_OFFER_HINT
        )
    return ends


def _request_and_accept(federation: FederationState, caller: Bearer, owner: str, body: NewBag) -> Bag:
    known = federation.bags.by_owner_key(owner, body.key)
    if known is not None:
        return known
    offer = _request_offers(federation, owner, resolve_users(federation, caller, owner), body)
    if offer.split is None:
        words = "; ".join(f"{name}: {why}" for name, why in (offer.whys or {}).items())
        what = (
            f"there is too little capacity for {body.tasks} tasks: "
            f"{words or 'all offers together are too small'}"
        )
        raise ProblemError("no-room", what, hint="request fewer or smaller tasks")
    if not offer.split.met and not body.late:
        federation.bag_operations.issue_offer(offer)
        earliest = _earliest_deadline(federation, offer.split)
        raise ProblemError(
            "no-room",
            f"the deadline is refused: {format_utc(earliest)}, {earliest - body.deadline} s later, is the "
            "earliest that can be kept",
            hint=f"set the deadline to {earliest}, accept offer {offer.id}, or set late",
            options=[asdict(offer_row(federation, offer))],
        )
    return _create_bag(federation, caller, owner, body, offer.asked, offer.split, offer.ends)


def _create_bag(
    federation: FederationState,
    caller: Bearer,
    owner: str,
    body: JobScript,
    terms: BagSpecification,
    split: TaskSplit,
    ends: Mapping[str, int],
    *,
    offer: str = "",
) -> Bag:
    """An issued ``offer`` is not accepted while another bag's share is being sent to its clusters."""
    submission = {
        "script": body.script,
        "resources": dict(terms.resources),
        "attributes": body.attributes,
        "variables": body.variables,
        "queues": dict(terms.queues),
        "cpu_seconds": terms.cpu_seconds,
        "walltime": terms.walltime,
        **claimed_users(caller, owner),
    }
    try:
        return federation.bag_operations.submit(
            owner, submission, terms, split.shares, ends, body.key, offer=offer, only_if_planned=bool(offer)
        )
    except LookupError as error:
        raise ProblemError("moved-on", str(error), hint=_NEW_OFFER_HINT) from None
    except OffersOutdatedError as error:
        hint = "wait some seconds; then " + _NEW_OFFER_HINT
        raise ProblemError("moved-on", str(error), hint=hint, headers=_RETRY_HEADERS) from None


@router.get("/v1/federation/bags", *_READ_PROBLEMS)
def _list_bags(
    federation: LeadingFederation, caller: Caller, state: Literal["all", "open"] = "all"
) -> BagsView:
    """Bags of the caller; for a reader or an admin, all bags."""
    rows = [bag_row(federation, one) for one in visible_items(federation.bags, caller)]
    return BagsView(bags=[row for row in rows if state == "all" or not row.over])


@router.get("/v1/federation/bags/{bag}", *_READ_PROBLEMS, "unknown-job")
def _get_bag(federation: LeadingFederation, caller: Caller, bag: str) -> BagView:
    """One bag: its tasks by state, by cluster and in total, and whether its deadline is kept."""
    return bag_row(federation, find_item(federation.bags, caller, bag, "bag"))


@router.delete("/v1/federation/bags/{bag}", *_READ_PROBLEMS, "unknown-job", "not-allowed")
async def _cancel_bag(federation: LeadingFederation, caller: Caller, bag: str) -> BagView:
    """Cancel a bag: waiting tasks are deleted. Running tasks go on; `qdel` at each cluster ends them."""
    found = find_item(federation.bags, caller, bag, "bag")
    require_write_role(caller)
    return bag_row(
        federation, await run_in_threadpool(federation.bag_operations.cancel, found.id, caller.name)
    )
