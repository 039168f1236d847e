"""``schedd book --federation``: cores within a window, at any cluster of a federation."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from schedd.cli.user.action_parsers import format_optional_time, print_answer
from schedd.cli.user.command_session import show_json
from schedd.cli.user.formatting import format_duration, format_rows, format_table, format_time
from schedd.client import ClientError, Refused
from schedd.client.answers import (
    BookingMoveView,
    BookingOptionView,
    CounterOfferView,
    FederatedBookingMove,
    FederatedBookingView,
)
from schedd.federation.commands.jobs import connect_federation


def run_federated_action(args: argparse.Namespace, asked: Callable[[int], dict[str, Any]]) -> bool:
    """Run an action; whether a start is known. ``asked`` is the body of a new booking. Raises ClientError."""
    if args.cluster:
        raise ClientError("with --federation, name clusters by --only")
    with connect_federation(args.url) as federation:
        now = federation.now()
        try:
            match args.act:
                case "add":
                    only = [one for one in args.only.split(",") if one]
                    terms = {**asked(now), "clusters": only, "by_speed": args.by_speed}
                    done = federation.book(args.name, terms)
                case "accept":
                    done = federation.accept_option(args.name, args.option)
                case "freeze":
                    done = federation.freeze_booking(args.name)
                case "cancel":
                    done = federation.cancel_booking(args.name)
                case "show":
                    done = federation.booking(args.name)
                case _:
                    found = federation.bookings(over=False)
                    print_answer(
                        args,
                        {"bookings": found},
                        lambda: _bookings_table(found, now) if found else "you have no bookings",
                    )
                    return True
        except Refused as error:
            if error.kind != "no-room":
                raise
            if args.json:
                show_json({"refused": error.detail, "options": [dict(one) for one in error.options]})
            else:
                print(_refusal_text(args.name, error, now))
            return False
    words = {"cancel": lambda: _cancel_text(done), "show": lambda: _booking_text(done, now)}
    print_answer(args, done, words.get(args.act, lambda: _bookings_table([done], now)))
    return args.act == "cancel" or done.start is not None


def moves_table(found: Sequence[BookingMoveView | FederatedBookingMove], now: int) -> Iterator[str]:
    """A table of a booking's moves, if it moved."""
    lines = [
        (format_time(one.time, now), format_time(one.before, now), format_time(one.after, now))
        for one in found
        if one.before is not None
    ]
    if lines:
        yield format_table(("MOVED", "FROM", "TO"), lines)


def _bookings_table(found: Sequence[FederatedBookingView], now: int) -> str:
    return format_table(
        ("NAME", "STATE", "CLUSTER", "FROM", "UNTIL", "CORES", "WHY"),
        [
            (
                one.name,
                one.state,
                one.cluster or "-",
                format_optional_time(one.start, now),
                format_optional_time(one.end, now),
                str(one.cpus or "-"),
                one.text or _format_flexibility(one),
            )
            for one in found
        ],
        last=20,
    )


def _format_flexibility(one: FederatedBookingView) -> str:
    """Return by how much it may still be moved."""
    return f"may move by {format_duration(one.spare)}" if one.state == "flexible" and one.spare else ""


def _booking_text(one: FederatedBookingView, now: int) -> str:
    rows = [
        ("state", one.state),
        ("cluster", one.cluster or "-"),
        ("from", f"{format_optional_time(one.start, now)} for {format_duration(one.duration)}"),
        ("window", f"{format_time(one.ready, now)} to {format_time(one.deadline, now)}"),
        (
            "asks for",
            ",".join(f"{name}={value}" for name, value in one.resources.items() if name != "walltime"),
        ),
    ]
    if room := _format_flexibility(one):
        rows.append(("flexible", room))
    if one.freezes is not None and one.state == "flexible":
        rows.append(("is frozen", format_time(one.freezes, now)))
    if one.jobs:
        rows.append(("jobs", ", ".join(one.jobs)))
    if one.text:
        rows.append(("why", one.text))
    tries = [
        (it.cluster, it.name, it.phase, format_time(it.since, now), it.text or it.why) for it in one.attempts
    ]
    parts = [f"booking {one.name}: {one.owner}", format_rows(rows)]
    if tries:
        parts.append(format_table(("CLUSTER", "NAME THERE", "STATE", "SINCE", "WHY"), tries, last=20))
    if one.options:
        parts.append(_options_table(one.name, one.options, now))
    return "\n\n".join((*parts, *moves_table(one.moves, now)))


def _cancel_text(one: FederatedBookingView) -> str:
    if one.over:
        return f"booking {one.name} {'is cancelled' if one.cancelled else 'is over: ' + one.over}"
    return f"booking {one.name}: {one.text or one.state}"


def _refusal_text(name: str, error: Refused, now: int) -> str:
    """Return the reason of a refusal, with the counter-offers."""
    words = format_rows([("not booked:", error.detail)])
    if not error.options:
        return words
    options = cast("Sequence[CounterOfferView]", error.options)
    return f"{words}\n\n{_options_table(name, options, now)}"


def _options_table(name: str, options: Sequence[CounterOfferView], now: int) -> str:
    lines = [
        (
            str(one.option),
            one.cluster,
            format_time(one.start, now),
            format_time(one.end, now),
            format_stretch(one),
        )
        for one in options
    ]
    shown = format_table(("OFFER", "CLUSTER", "FROM", "UNTIL", "OFF BY"), lines, last=12)
    return f"{shown}\n\nschedd book --federation accept {name} NUMBER accepts one"


def format_stretch(one: BookingOptionView | CounterOfferView) -> str:
    """Difference between an offer and the request."""
    if not one.stretch:
        return "within the window"
    return f"{abs(one.stretch):.2f} lengths {'before' if one.stretch < 0 else 'after'}"
