"""Forms of the administrators' page for reservations."""

import re
from collections.abc import Mapping
from typing import Final

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import Response

from schedd.api.problems import ProblemError
from schedd.api.request_bodies import ReservationRequest
from schedd.api.reservations import reserve, run_reservation_preview, unreserve
from schedd.api.routes import RouteTable
from schedd.dashboard.admin_page import redirect_to_admin, render_admin_page
from schedd.dashboard.pages.admin import parse_form_time
from schedd.dashboard.viewer import Cluster, Form, Operator
from schedd.dialect import RequestError
from schedd.dialect.units import parse_size
from schedd.wire.object_names import OBJECT_NAME
from schedd.wire.section import problem_text

_MOST_DIGITS: Final = 9

router = RouteTable(prefix="/{cluster}/admin")


@router.post("/reserve")
async def make_reservation(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Create a reservation, or show its effects."""
    name = form.get("name", "").strip()
    try:
        if not OBJECT_NAME.fullmatch(name):
            raise ProblemError("invalid", "name: letters, digits, '.', '_' and '-'")
        wanted = _parse_reservation(form)
        if form.get("preview"):
            return await render_admin_page(
                request,
                cluster,
                viewer,
                reservation_preview=await run_reservation_preview(request, cluster, name, wanted),
                form=form,
            )
        await reserve(cluster, name, wanted, viewer.bearer.name)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{first['loc'][-1]}: " if first["loc"] else ""
        words = where + problem_text(first)
        refused = ProblemError("invalid", f"{name[:80]}: {words}")
        return await render_admin_page(
            request, cluster, viewer, 422, reservation_error=words, form=form, refused=refused
        )
    except ProblemError as error:
        if error.kind != "invalid":
            raise
        words = error.detail.removeprefix("body.")
        return await render_admin_page(
            request, cluster, viewer, 422, reservation_error=words, form=form, refused=error
        )
    return redirect_to_admin(request, cluster.name, "reserved")


@router.post("/unreserve")
async def delete_reservation(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Remove a reservation."""
    await unreserve(cluster, form.get("name", ""), viewer.bearer.name)
    return redirect_to_admin(request, cluster.name, "lifted")


def _parse_reservation(form: Mapping[str, str]) -> ReservationRequest:
    """Return the reservation of the form. Raises ValidationError and ProblemError."""
    words = re.sub(r",(?![^\[]*\])", " ", form.get("where", "")).split()  # commas outside of brackets
    kind = form.get("kind", "nodes")
    return ReservationRequest(
        nodes=tuple(words) if kind == "nodes" else (),
        features=tuple(words) if kind == "features" else (),
        everywhere=kind == "everywhere",
        start=parse_form_time(form, "start"),
        end=parse_form_time(form, "end"),
        reason=form.get("reason", "").strip(),
        users=tuple(form.get("users", "").replace(",", " ").split()),
        shorter=60 * _parse_number(form, "shorter"),
        cores=_parse_number(form, "cores"),
        gpus=_parse_number(form, "gpus"),
        mem=_parse_memory(form),
        total=bool(form.get("total")),
    )


def _parse_memory(form: Mapping[str, str]) -> int:
    """Return the KiB in the field ``mem``, as ``qsub -l mem`` takes them, 0 if it is empty. Raises
    ProblemError.
    """
    text = form.get("mem", "").strip()
    try:
        return parse_size(text) if text else 0
    except RequestError as error:
        raise ProblemError("invalid", f"mem: {error.comment}") from None


def _parse_number(form: Mapping[str, str], field: str) -> int:
    """Return the number in a field, 0 if it is empty. Raises ProblemError."""
    text = form.get(field, "").strip()
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise ProblemError("invalid", f"{field}: write a whole number instead of {text[:20]!r}")
    return int(text)
