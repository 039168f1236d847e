"""``schedd policy``: the site's policy in force shown, tried out, changed, withdrawn."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from schedd.cli.user.asking import Session, answer, parser, show_json
from schedd.cli.user.foreseen import foreseen
from schedd.cli.user.optimise import changes
from schedd.cli.user.text import rows
from schedd.client import ClientError
from schedd.client.answers import PolicyPreview, PolicyView

__all__ = ["make_parser", "run", "wanted"]


def make_parser(name: str = "schedd policy") -> argparse.ArgumentParser:
    """Its options."""
    found = parser(
        name,
        "Show the site's policy in force: limits, weights, classes, shares, licences, standing reservations. "
        "Or try another one out, put it in force, withdraw it. It goes before the settings until it is "
        "withdrawn. To show and to preview one needs the role operator or admin, else admin.",
        "what:\n"
        "  FILE              TOML or JSON, what stands below [clusters.NAME.site]: all of it\n"
        "  KEY=VALUE         a change to the one in force: priority.waiting=2,\n"
        "                    criteria.wait=1, fair_share.shares.physics=3\n"
        "  KEY=              back to its default",
    )
    acts = found.add_subparsers(dest="act", metavar="ACTION", title="actions")
    acts.add_parser("show", help="show the policy (default)", allow_abbrev=False)
    for act, about in (("preview", "show the effects; change nothing"), ("set", "put a policy in force")):
        one = acts.add_parser(act, help=about, allow_abbrev=False)
        one.add_argument("what", nargs="+", metavar="FILE|KEY=VALUE")
    acts.add_parser("withdraw", help="return to the policy of the settings file", allow_abbrev=False)
    return found


def run(argv: Sequence[str], name: str = "schedd policy") -> int:
    """The command."""
    return answer(make_parser(name), _act, argv)


def _act(session: Session, args: argparse.Namespace) -> bool:
    client = session.client
    if args.act == "preview":
        found = client.preview_policy(wanted(args.what, client.policy()["site"]))
        show_json(found) if args.json else print(_preview(found, session.now))
        return True
    if args.act == "set":
        policy = client.set_policy(wanted(args.what, client.policy()["site"]))
    else:
        policy = client.withdraw_policy() if args.act == "withdraw" else client.policy()
    show_json(policy) if args.json else print(_policy(policy))
    return True


def wanted(words: Sequence[str], now: Mapping[str, Any]) -> dict[str, Any]:
    """The policy that the words mean: a file, or changes to the one in force. Raises ClientError."""
    if len(words) == 1 and "=" not in words[0]:
        return _read(Path(words[0]))
    site: dict[str, Any] = json.loads(json.dumps(now))
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ClientError(f"{word}: a file stands alone; a change is KEY=VALUE")
        _put(site, key.split("."), value)
    return site


def _put(site: dict[str, Any], path: Sequence[str], value: str) -> None:
    table: Any = site
    for name in path[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ClientError(f"{'.'.join(path)}: {name} is no table")
    if not value:
        table.pop(path[-1], None)
        return
    try:
        table[path[-1]] = json.loads(value)
    except ValueError:
        table[path[-1]] = value


def _read(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  (only who has such a file pays for it)

    try:
        text = path.read_text("utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ClientError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(found, dict):
        raise ClientError(f"{path}: a table is expected")
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def _policy(policy: PolicyView) -> str:
    version = policy["version"]
    title = f"version {version}, set while the daemon runs" if version else "that of the settings"
    return f"{title}\n{json.dumps(policy['site'], indent=2, ensure_ascii=False)}"


def _preview(found: PolicyPreview, now: int) -> str:
    text = foreseen(found, now)
    run = found["search"]
    if run is None:
        return text
    lines = [("moved", f"{run['moved']} of {run['jobs']} jobs"), *changes(run)]
    return f"{text}\n\nA search under these criteria, on a copy of the plan:\n{rows(lines)}"
