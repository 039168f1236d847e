"""Bags over HTTP: equal tasks with a deadline, offered by the clusters' plans, taken, looked at, taken
back.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from schedd.api.asked import Bag as AskedBag
from schedd.api.asked import Work
from schedd.api.bag_rows import bag_row
from schedd.api.problems import Fault, ProblemError, answers
from schedd.api.roof import Asker, TheRoof, claimed_by, owner_of, users_of
from schedd.federation.bags.bag import Bag
from schedd.federation.bags.events import BagAsked
from schedd.federation.bags.offers import Split
from schedd.federation.bags.told import BagOffer
from schedd.federation.roof.bags import BusyError
from schedd.federation.roof.roof import Roof
from schedd.federation.threads.asking import ask, ends_of, sizes_of, split_of
from schedd.federation.threads.peers import client_of
from schedd.service.access.roles import Bearer

__all__ = ["add"]

_READ: Final = ("no-token", "not-ready", "invalid")
_AGAIN: Final = "POST /v1/federation/bag makes a new offer"
_SOON: Final = {"Retry-After": "5"}


class TakenBag(Work):
    """A bag that is handed over by an ``offer`` that was told, which says all but what runs."""

    offer: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$", examples=["3f0c5b1e9a7d2c46"])]
    owner: Annotated[str, Field(description="An admin alone names another than himself.", max_length=200)] = (
        ""
    )


class NewBag(AskedBag, Work):
    """A bag that is asked for and handed over at once."""

    late: Annotated[bool, Field(description="Also where it ends after its deadline: as early as it can.")] = (
        False
    )


def add(app: FastAPI) -> None:
    """Serve bags, too."""
    route = app.add_api_route
    body = ("not-allowed", "bad-request", "too-large")
    route("/v1/federation/bag", _offer, methods=["POST"], responses=answers(*_READ, *body))
    route("/v1/federation/bags", _bags, methods=["GET"], responses=answers(*_READ))
    route(
        "/v1/federation/bags",
        _submit,
        methods=["POST"],
        status_code=201,
        responses=answers(*_READ, *body, "no-room", "moved-on"),
    )
    one = "/v1/federation/bags/{bag}"
    route(one, _bag, methods=["GET"], responses=answers(*_READ, "unknown-job"))
    route(one, _cancel, methods=["DELETE"], responses=answers(*_READ, "unknown-job", "not-allowed"))


# ---- offers ---------------------------------------------------------------------------------------


async def _offer(roof: TheRoof, asker: Asker, body: AskedBag) -> dict[str, Any]:
    """How would a bag of tasks be shared, to end by its deadline or as early as can be? Nothing is submitted.

    Each cluster's plan says by when it would have ended how many tasks. `POST /v1/federation/bags` takes the
    offer, until it expires.
    """
    owner = owner_of(roof, asker, body)
    found = await run_in_threadpool(_told, roof, owner, users_of(roof, asker, owner), body)
    return offer_row(found)


def _told(roof: Roof, owner: str, users: Mapping[str, str], body: AskedBag) -> BagOffer:
    """Asks the plans, and keeps what is told. Raises ProblemError and StoreError."""
    found = _made(roof, owner, users, body)
    roof.of_bags.tell(found)
    return found


def _made(roof: Roof, owner: str, users: Mapping[str, str], body: AskedBag) -> BagOffer:
    """Asks the plans for an offer that nobody was told yet. Raises ProblemError."""
    asked = BagAsked(
        resources=body.asked,
        walltime=body.walltime,
        cpu_seconds=body.cpu_seconds,
        tasks=body.tasks,
        deadline=body.deadline,
        clusters=tuple(body.clusters),
        queues=body.queues,
        balance=body.balance.value,
    )
    if body.deadline <= roof.now:
        what = f"the deadline, {body.deadline}, is past: it is {roof.now}"
        raise ProblemError("invalid", what, errors=[Fault(where="body.deadline", what=what)])
    names = body.clusters or tuple(roof.settings.clusters)
    found = ask(roof, owner, users, asked, dict.fromkeys(names, sizes_of(body.tasks)), client_of)
    try:
        split = split_of(roof, found, body.tasks, body.deadline, body.balance)
    except ValueError as error:
        fault = Fault(where="body.balance", what=str(error), allowed="none, offers")
        raise ProblemError("invalid", str(error), errors=[fault]) from None
    ends = ends_of(found.offers, split) if split is not None else {}
    return roof.of_bags.make(
        owner, asked, split=split, ends=ends, plans=found.plans, offers=found.offers, whys=found.whys
    )


def offer_row(one: BagOffer) -> dict[str, Any]:
    """An offer as who asked sees it."""
    return {
        "id": one.id,
        "expires": one.expires,
        "tasks": one.asked.tasks,
        "deadline": one.asked.deadline,
        "offers": [asdict(offer) for offer in one.offers],
        "split": asdict(one.split) if one.split is not None else None,
        "plans": dict(one.plans),
        "why": dict(one.whys or {}),
    }


# ---- bags -----------------------------------------------------------------------------------------


async def _submit(roof: TheRoof, asker: Asker, body: TakenBag | NewBag) -> Response:
    """Hand a bag to the federation: by an `offer` that was told, or asked for and taken at once. Each
    cluster gets its share as job arrays. The answer comes when it cannot be lost any more.
    """
    if isinstance(body, TakenBag):
        owner = _owner_of_taken(asker, body)
        bag = await run_in_threadpool(_take, roof, asker, owner, body)
    else:
        owner = owner_of(roof, asker, body)
        bag = await run_in_threadpool(_take_at_once, roof, asker, owner, body)
    return JSONResponse(bag_row(roof, bag), 201)


def _owner_of_taken(asker: Bearer, body: TakenBag) -> str:
    if asker.role == "reader":
        raise ProblemError("not-allowed", f"{asker.name} may only read")
    if body.owner and body.owner != asker.name and asker.role != "admin":
        raise ProblemError("not-allowed", f"{asker.name} may not act for {body.owner}")
    return body.owner or asker.name


def _take(roof: Roof, asker: Bearer, owner: str, body: TakenBag) -> Bag:
    known = roof.bags.by_key.get((owner, body.key)) if body.key else None
    if known is not None:
        return roof.bags[known]
    try:
        offer = roof.of_bags.offers.find(body.offer, owner)
    except LookupError as error:
        raise ProblemError("moved-on", str(error), hint=_AGAIN) from None
    if offer.split is None:
        raise ProblemError(
            "no-room", f"offer {offer.id} has no room for {offer.asked.tasks} tasks", hint=_AGAIN
        )
    ends = {**offer.ends, **_looked_at_again(roof, owner, users_of(roof, asker, owner), offer, offer.split)}
    return _kept(roof, asker, owner, body, offer.asked, offer.split, ends, offer=offer.id)


def _looked_at_again(
    roof: Roof, owner: str, users: Mapping[str, str], offer: BagOffer, split: Split
) -> dict[str, int]:
    """By cluster whose plan is another one by now, when it ends its share. Raises ProblemError: too late."""
    moved = [name for name in split.shares if roof.generations.get(name) != offer.plans.get(name)]
    found = ask(roof, owner, users, offer.asked, {name: (split.shares[name],) for name in moved}, client_of)
    ends = {one.provider: one.end for one in found.offers}
    latest = offer.asked.deadline if split.met else split.end
    for name in moved:
        if name not in ends:
            why = found.whys.get(name, "it offers nothing any more")
        elif ends[name] > latest:
            late = ends[name] - latest
            why = f"its plan has moved on: {split.shares[name]} tasks end there {late} s too late"
        else:
            continue
        raise ProblemError("moved-on", f"offer {offer.id} holds no longer: {name}: {why}", hint=_AGAIN)
    return ends


def _take_at_once(roof: Roof, asker: Bearer, owner: str, body: NewBag) -> Bag:
    known = roof.bags.by_key.get((owner, body.key)) if body.key else None
    if known is not None:
        return roof.bags[known]
    offer = _made(roof, owner, users_of(roof, asker, owner), body)
    if offer.split is None:
        words = "; ".join(f"{name}: {why}" for name, why in (offer.whys or {}).items())
        what = f"there is no room for {body.tasks} tasks: {words or 'all offers together are too small'}"
        raise ProblemError("no-room", what, hint="ask for fewer tasks, or smaller ones")
    if not offer.split.met and not body.late:
        roof.of_bags.tell(offer)
        raise ProblemError(
            "no-room",
            f"the tasks end {offer.split.end - body.deadline} s after the deadline",
            hint=f"take offer {offer.id}, say late, or move the deadline to {offer.split.end}",
            options=[offer_row(offer)],
        )
    return _kept(roof, asker, owner, body, offer.asked, offer.split, offer.ends)


def _kept(
    roof: Roof,
    asker: Bearer,
    owner: str,
    body: Work,
    asked: BagAsked,
    split: Split,
    ends: Mapping[str, int],
    *,
    offer: str = "",
) -> Bag:
    """An ``offer`` that was told is not taken while another bag's share is on its way to its clusters."""
    submission = {
        "script": body.script,
        "resources": dict(asked.resources),
        "attributes": body.attributes,
        "variables": body.variables,
        "queues": dict(asked.queues),
        "cpu_seconds": asked.cpu_seconds,
        "walltime": asked.walltime,
        **claimed_by(asker, owner),
    }
    try:
        return roof.of_bags.submit(
            owner, submission, asked, split.shares, ends, body.key, offer=offer, alone=bool(offer)
        )
    except LookupError as error:
        raise ProblemError("moved-on", str(error), hint=_AGAIN) from None
    except BusyError as error:
        hint = "wait some seconds; then " + _AGAIN
        raise ProblemError("moved-on", str(error), hint=hint, headers=_SOON) from None


def _bags(roof: TheRoof, asker: Asker, state: Literal["all", "open"] = "all") -> dict[str, Any]:
    """Bags of the asker; of all, for a reader or an admin."""
    rows = [bag_row(roof, one) for one in list(roof.bags.by_id.values()) if _sees(asker, one)]
    return {"bags": [row for row in rows if state == "all" or not row["over"]]}


def _bag(roof: TheRoof, asker: Asker, bag: str) -> dict[str, Any]:
    """One bag: how its tasks stand, by cluster and in all, and whether its deadline is kept."""
    return bag_row(roof, _found(roof, asker, bag))


async def _cancel(roof: TheRoof, asker: Asker, bag: str) -> dict[str, Any]:
    """Take a bag back: tasks that wait are deleted. Those that run go on; `qdel` at each cluster ends
    them.
    """
    found = _found(roof, asker, bag)
    if asker.role == "reader":
        raise ProblemError("not-allowed", f"{asker.name} may only read")
    return bag_row(roof, await run_in_threadpool(roof.of_bags.cancel, found.id, asker.name))


def _sees(asker: Bearer, bag: Bag) -> bool:
    return asker.role != "user" or asker.name == bag.owner


def _found(roof: Roof, asker: Bearer, name: str) -> Bag:
    bag = roof.bags.by_id.get(name)
    if bag is None or not _sees(asker, bag):
        raise ProblemError("unknown-job", f"the federation has no bag {name[:40]}")
    return bag
