"""``schedd account``: show accounts and charges; create accounts and transfer amounts."""

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from time import localtime, strftime
from typing import Any, Final

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_table, format_time
from schedd.client.answers import AccountsView, AccountView, ChargeSummary, LedgerEntry
from schedd.client.json_object import json_members

_COLUMNS: Final = ("month", "account", "user", "unit", "jobs", "core_hours", "gpu_hours", "charged")
_UNITS: Final = {"core-hours": "core_hours", "money": "money"}
_PERIODS: Final = {"none": "", "month": "month", "quarter": "quarter", "year": "year"}


def make_parser(name: str = "schedd account") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show accounts (without an action), their ledger, and charges; create accounts and transfer "
        "amounts. Changes need the role admin.",
    )
    acts = found.add_subparsers(dest="act", metavar="ACTION", title="actions")
    make = acts.add_parser("set", help="create an account, or set its amount")
    make.add_argument("account", metavar="ACCOUNT", help="name of the account")
    make.add_argument(
        "amount", metavar="AMOUNT", type=float, help="for each period; without a period, in total"
    )
    make.add_argument(
        "--unit",
        choices=tuple(_UNITS),
        help="what the amount counts (default: unchanged; new accounts: core-hours)",
    )
    make.add_argument(
        "--period",
        choices=tuple(_PERIODS),
        help="the amount is granted again in each period (default: unchanged; new accounts: none)",
    )
    make.add_argument(
        "--overdraft", type=float, metavar="AMOUNT", help="how far the balance may go below zero"
    )
    make.add_argument("--users", metavar="A,B", help="users who may charge the account; empty: all users")
    state = make.add_mutually_exclusive_group()
    state.add_argument("--close", action="store_true", help="plan no more jobs of this account")
    state.add_argument("--open", action="store_true", help="plan its jobs again")
    for act, words in (
        ("add", "add to an account"),
        ("take", "take from an account"),
        ("move", "move an amount from one account to another"),
    ):
        one = acts.add_parser(act, help=words)
        if act == "move":
            one.add_argument("source", metavar="FROM", help="account that pays")
        into = act == "move"
        words = "account that receives it" if into else "name of the account"
        one.add_argument("account", metavar="TO" if into else "ACCOUNT", help=words)
        one.add_argument("amount", metavar="AMOUNT", type=float, help="amount in the unit of the account")
    for one in (make, *(acts.choices[act] for act in ("add", "take", "move"))):
        one.add_argument("--reason", metavar="TEXT", default="", help="stored in the ledger")
    ledger = acts.add_parser("ledger", help="list changes, newest first")
    ledger.add_argument(
        "-n", "--lines", type=int, default=30, metavar="N", help="lines to show (default: 30)"
    )
    report = acts.add_parser("report", help="show charges")
    report.add_argument(
        "--by",
        default="month,account,user",
        metavar="KEYS",
        help="group by any of month,account,user (default: all three)",
    )
    report.add_argument("--csv", action="store_true", help="as CSV")
    for one in (ledger, report):
        one.add_argument("--account", default="", metavar="NAME", help="only this account")
        one.add_argument("--user", default="", metavar="NAME", help="only this user's jobs")
        one.add_argument(
            "--since", type=_parse_day, metavar="DATE", help="from this day on, for example 2026-11-01"
        )
        one.add_argument("--until", type=_parse_day, metavar="DATE", help="up to this day, exclusive")
    return found


def run(argv: Sequence[str], name: str = "schedd account") -> int:
    return run_command(make_parser(name), _run_action, argv)


def _parse_day(word: str) -> int:
    try:
        return int(datetime.fromisoformat(word).astimezone().timestamp())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word}: a date such as 2026-11-01 is needed") from None


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    client = session.client
    if args.act == "ledger":
        page = client.ledger(
            account=args.account, user=args.user, since=args.since, until=args.until, limit=args.lines
        )
        show_json(page) if args.json else print(_ledger_table(page.lines))
        return True
    if args.act == "report":
        found = client.account_report(
            by=args.by, account=args.account, user=args.user, since=args.since, until=args.until
        )
        if args.csv:
            _write_csv(found.rows)
        else:
            show_json(found) if args.json else print(_charges_table(found.rows))
        return True
    accounts = _change_accounts(session, args) if args.act else client.accounts()
    show_json(accounts) if args.json else print(_accounts_table(accounts, session.now))
    return True


def _change_accounts(session: Session, args: argparse.Namespace) -> AccountsView:
    client = session.client
    if args.act == "set":
        known = {one.name: one for one in client.accounts().accounts}
        return client.set_account(args.account, _account_settings(args, known.get(args.account)))
    source, target = {
        "add": ("", args.account),
        "take": (args.account, ""),
    }.get(args.act) or (args.source, args.account)
    return client.transfer_amount(source, target, args.amount, args.reason)


def _account_settings(args: argparse.Namespace, known: AccountView | None) -> dict[str, Any]:
    """Return the new settings; omitted ones stay unchanged."""
    before: Mapping[str, Any] = json_members(known) if known is not None else {}
    unit = before.get("unit", "core_hours")
    return {
        "unit": _UNITS[args.unit] if args.unit else "core_hours" if unit == "core_hours" else "money",
        "amount": args.amount,
        "period": _PERIODS[args.period] if args.period else before.get("period", ""),
        "overdraft": args.overdraft if args.overdraft is not None else before.get("overdraft", 0.0),
        "users": [one for one in args.users.split(",") if one]
        if args.users is not None
        else list(before.get("users", ())),
        "closed": args.close or (bool(before.get("closed")) and not args.open),
        "reason": args.reason,
    }


def _accounts_table(found: AccountsView, now: int) -> str:
    if not found.accounts:
        return "there are no accounts that you may use or see"
    lines = [
        (
            one.name + (" (closed)" if one.closed else ""),
            _format_number(one.left),
            _format_number(one.amount),
            _format_number(one.charged),
            _format_number(one.held),
            one.unit.replace("_", "-"),
            format_time(one.until, now) if one.until is not None else "-",
            ", ".join(one.users) or "-",
        )
        for one in found.accounts
    ]
    heads = ("ACCOUNT", "LEFT", "AMOUNT", "CHARGED", "HELD", "UNIT", "UNTIL", "USERS")
    return format_table(heads, lines, right="1234", last=6)


def _ledger_table(found: Sequence[LedgerEntry]) -> str:
    lines = [
        (
            strftime("%d %b %H:%M", localtime(one.time)),
            one.account,
            one.kind,
            f"{one.amount:+,.2f}",
            _format_number(one.balance),
            one.job or one.other or "-",
            " ".join(filter(None, (one.owner.partition("@")[0] or one.by, one.reason))) or "-",
        )
        for one in found
    ]
    heads = ("TIME", "ACCOUNT", "WHAT", "AMOUNT", "BALANCE", "JOB/OTHER", "WHO")
    return format_table(heads, lines, right="34", last=8) if lines else "nothing was entered"


def _charges_table(found: Sequence[ChargeSummary]) -> str:
    if not found:
        return "nothing was charged"
    lines = [
        (
            one.month or "-",
            one.account or "-",
            one.user or "-",
            str(one.jobs),
            _format_number(one.core_hours),
            _format_number(one.gpu_hours),
            _format_number(one.charged),
            one.unit.replace("_", "-"),
        )
        for one in found
    ]
    heads = ("MONTH", "ACCOUNT", "USER", "JOBS", "CORE-HOURS", "GPU-HOURS", "CHARGED", "UNIT")
    return format_table(heads, lines, right="3456")


def _write_csv(found: Sequence[ChargeSummary]) -> None:
    writer = csv.DictWriter(sys.stdout, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(json_members, found))


def _format_number(value: float) -> str:
    return f"{value:,.2f}"
