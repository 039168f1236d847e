"""``schedd policy``: the site's policy in force shown, tried out, changed, withdrawn."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_rows
from schedd.cli.user.optimise import criterion_rows
from schedd.cli.user.preview_text import format_preview
from schedd.client import ClientError, Refused
from schedd.client.answers import PolicyPreview, PolicyView

_UNKNOWN: Final = "it is not known here"
_SETTINGS_HINT: Final = "`schedd config reference` has all settings"


def make_parser(name: str = "schedd policy") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show the site policy in force: limits, weights, classes, shares, licences, standing reservations. "
        "Or preview another policy, put it in force, or withdraw it. Until it is withdrawn, it replaces the "
        "policy of the settings file. Changes need the role admin, all else operator or admin.",
        "changes to the policy:\n"
        "  FILE              a whole policy, TOML or JSON: a schedd.toml with\n"
        "                    [clusters.NAME.site], or the content of that section\n"
        "  KEY=VALUE         a single change: priority.waiting=2,\n"
        "                    fair_share.shares.physics=3, 'objectives = { wait = 1 }'\n"
        "  KEY=              reset this setting to its default",
    )
    acts = found.add_subparsers(dest="act", metavar="ACTION", title="actions")
    acts.add_parser("show", help="show the policy (default)", allow_abbrev=False)
    for act, about in (("preview", "show the effects; change nothing"), ("set", "put a policy in force")):
        one = acts.add_parser(act, help=about, allow_abbrev=False)
        one.add_argument(
            "what", nargs="+", metavar="FILE|KEY=VALUE", help="changes, as `schedd policy --help` lists them"
        )
        if act == "set":
            _add_consent(one)
    _add_consent(
        acts.add_parser("withdraw", help="return to the policy of the settings file", allow_abbrev=False)
    )
    return found


def _add_consent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--break-promises",
        action="store_true",
        help="also if promises would be put at risk; otherwise it is refused, and their owners are named",
    )


def run(argv: Sequence[str], name: str = "schedd policy") -> int:
    return run_command(make_parser(name), _run_action, argv)


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    try:
        return _act(session, args)
    except Refused as error:
        unknown = [f"{place}; {_SETTINGS_HINT}" for place in error.places if place.endswith(_UNKNOWN)]
        if not unknown:
            raise
        raise Refused(error.kind, error.status, error.detail, error.hint, unknown) from None


def _act(session: Session, args: argparse.Namespace) -> bool:
    client = session.client
    if args.act == "preview":
        found = client.preview_policy(merge_policy(args.what, client.policy().site, args.cluster))
        show_json(found) if args.json else print(_format_policy_preview(found, session.now))
        return True
    if args.act == "set":
        present = client.policy()
        site = merge_policy(args.what, present.site, args.cluster)
        # The daemon refuses if another administrator has set a policy meanwhile: it would be undone.
        instead = present.version if any("=" in word for word in args.what) else None
        policy = client.set_policy(site, break_promises=args.break_promises, instead=instead)
    elif args.act == "withdraw":
        policy = client.withdraw_policy(break_promises=args.break_promises)
    else:
        policy = client.policy()
    show_json(policy) if args.json else print(_format_policy(policy))
    return True


def merge_policy(words: Sequence[str], now: Mapping[str, Any], cluster: str | None = None) -> dict[str, Any]:
    """The policy given by the arguments: a file, or changes to the present one. A file may be a whole
    schedd.toml, from which the policy of ``cluster`` is used. Raises ClientError.
    """
    if len(words) == 1 and "=" not in words[0]:
        return _extract_site(_read_file(Path(words[0])), words[0], cluster)
    site: dict[str, Any] = json.loads(json.dumps(now))
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ClientError(f"{word}: give either one file, or changes KEY=VALUE")
        path = [name.strip() for name in key.split(".")]
        if len(path) > 3 and path[0] == "clusters" and path[2] == "site":
            path = path[3:]
        if not all(path):
            raise ClientError(f"{word}: the key before = is missing")
        _set_value(site, path, value.strip())
    return site


def _set_value(site: dict[str, Any], path: Sequence[str], value: str) -> None:
    table: Any = site
    for name in path[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ClientError(f"{'.'.join(path)}: {name} is no table")
    if not value:
        table.pop(path[-1], None)
        return
    table[path[-1]] = _parse_value(value)


def _parse_value(text: str) -> Any:
    """A value in JSON or TOML; any other text unchanged."""
    import tomllib  # noqa: PLC0415 (needed only for changes of a policy)

    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(json.dumps(tomllib.loads(f"value = {text}")["value"], default=str))
    except ValueError:
        return text


def _extract_site(found: dict[str, Any], file: str, cluster: str | None) -> dict[str, Any]:
    """The policy of a file: all of it, or the table [clusters.NAME.site] of a schedd.toml."""
    clusters = found.get("clusters")
    if not isinstance(clusters, dict):
        return found
    named = clusters.get(cluster) if cluster else next(iter(clusters.values()), None)
    if named is None or (not cluster and len(clusters) > 1):
        raise ClientError(f"{file} has the clusters {', '.join(clusters)}: name one with --cluster")
    site = named.get("site", {}) if isinstance(named, dict) else None
    if not isinstance(site, dict):
        raise ClientError(f"{file}: [clusters.NAME.site] is no table")
    return site


def _read_file(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 (needed only for such a file)

    try:
        text = path.read_text("utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ClientError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(found, dict):
        raise ClientError(f"{path}: a table is expected")
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def _format_policy(policy: PolicyView) -> str:
    version = policy.version
    title = f"version {version}, set while the daemon runs" if version else "the policy of the settings file"
    note = f"\n{policy.note}" if policy.note else ""
    return f"{title}{note}\n{json.dumps(policy.site, indent=2, ensure_ascii=False)}"


def _format_policy_preview(found: PolicyPreview, now: int) -> str:
    text = format_preview(found, now)
    run = found.search
    if run is None:
        return text
    lines = [("moved", f"{run.moved} of {run.jobs} jobs"), *criterion_rows(run)]
    return f"{text}\n\nA search under these criteria, on a copy of the plan:\n{format_rows(lines)}"
