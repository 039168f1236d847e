"""Fair share of pbs_sched: its options in sched_config and the tree in resource_group."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from schedd.cli.importing.result import ImportResult, Verdict, duration
from schedd.cli.importing.sched_options import SchedConfig, SchedOption, parse_rows

ENTITIES = {
    "euser": "user",
    "egroup": "group",
    "account_name": "account",
    "queue": "queue",
    "project": "project",
}
"""Owner of shares in pbs_sched: level of fair_share."""
_FILE = "resource_group"
_UNKNOWN = "unknown"  # group that pbs_sched creates for all users that are not listed
_LONGEST_S = 366 * 86_400
_LIMITED = frozenset({"user", "group", "account", "project"})


@dataclass(frozen=True, slots=True)
class ResourceGroups:
    """Contents of a file resource_group.

    ``leaves`` have the line, the own shares, and the part of the whole in percent; ``groups`` have the line.
    ``parents`` lacks the topmost entries. ``bad`` has text and fault of each invalid line.
    """

    leaves: Mapping[str, tuple[int, float, float]]
    groups: Mapping[str, int]
    shares: Mapping[str, float]
    parents: Mapping[str, str]
    bad: Mapping[int, tuple[str, str]]


def parse_shares(text: str) -> ResourceGroups:
    """Parse the lines ``name number parent shares`` of a file resource_group. Names are not case-sensitive.

    As in pbs_sched, a parent is on a line above its children, so there are no cycles.
    """
    lines: dict[str, int] = {}
    shares: dict[str, float] = {}
    parents: dict[str, str] = {}
    spelled = {"root": ""}
    bad: dict[int, tuple[str, str]] = {}
    for number, fields in parse_rows(text):
        try:
            name, _, parent, amount = fields[:4]
            mine = float(amount)
        except ValueError:
            bad[number] = " ".join(fields)[:60], "the line is not 'name number parent shares'"
            continue
        reason = ""
        if name.lower() in spelled:
            before = spelled[name.lower()]
            reason = f"{name} is already on line {lines[before]}" if before else "root is built in"
        elif parent.lower() not in spelled:
            reason = f"no line above defines its parent {parent}"
        elif not 0 <= mine <= 1e9:
            reason = "shares must be a number from 0 to 10^9"
        elif "/" in name:
            reason = "a name with / is not supported"
        if reason:
            bad[number] = " ".join(fields)[:60], reason
            continue
        spelled[name.lower()] = name
        lines[name], shares[name] = number, mine
        if parent.lower() != "root":
            parents[name] = spelled[parent.lower()]

    def part(name: str) -> float:
        siblings = sum(mine for other, mine in shares.items() if parents.get(other) == parents.get(name))
        mine = shares[name] / siblings if siblings else 0.0
        return mine * part(parents[name]) if name in parents else mine

    groups = set(parents.values())
    return ResourceGroups(
        leaves={name: (lines[name], shares[name], 100 * part(name)) for name in shares if name not in groups},
        groups={name: lines[name] for name in shares if name in groups},
        shares=shares,
        parents=parents,
        bad=bad,
    )


def fair_share_level(source: SchedConfig) -> str:
    """Return the level whose shares count; ``user`` if the file has no valid one."""
    option = source.get("fairshare_entity")
    return ENTITIES.get(option.value.lower(), "user") if option is not None else "user"


def translate_fair_share(option: SchedOption, source: SchedConfig, weight: float) -> None:
    """Translate the option fair_share with its parts; ``weight`` is the weight of its term."""
    done = source.done
    shares = parse_shares(source.companions.get(_FILE, ""))
    if not option.on:
        done.note(Verdict.NOT_NEEDED, option.line, option.name, "fair share is off")
        for line in (*shares.groups.values(), *(line for line, _, _ in shares.leaves.values()), *shares.bad):
            done.note(Verdict.NOT_NEEDED, line, "shares", "fair share is off, and no sort key uses it", _FILE)
        return
    tree = done.table("fair_share")
    tree |= {"levels": ["user"], "interval": 86_400, "decay": 0.5, "depth": 20}
    done.table("priority")["fair_share"] = weight
    message = (
        f"priority.fair_share = {weight:.10g}: a factor of use over share (docs/administrators/policy.md)"
    )
    if source.get("fairshare_usage_res") is None:
        message += "; use is counted in cpu-seconds held, not in cpu time used"
        done.note(Verdict.DIFFERS, option.line, option.name, message)
    else:
        done.note(Verdict.TRANSLATED, option.line, option.name, message)
    for other in source.options:
        if other.name in FAIR_SHARE_PARTS:
            FAIR_SHARE_PARTS[other.name](other, tree, done)
    if source.openpbs and source.get("fairshare_decay_time") is None and source.get("half_life") is None:
        done.note(
            Verdict.TRANSLATED,
            0,
            "fairshare_decay_time",
            "not in the file; PBS's default is a day: fair_share.interval = 86400",
        )
    _shares(shares, tree, done)
    _translate_missing_shares(shares, source, tree)


def _decay_time(option: SchedOption, tree: dict[str, object], done: ImportResult) -> None:
    try:
        tree["interval"] = min(max(60, duration(option.value)), _LONGEST_S)
    except ValueError as error:
        done.note(Verdict.DIFFERS, option.line, option.name, str(error))
    else:
        done.note(Verdict.TRANSLATED, option.line, option.name, f"fair_share.interval = {tree['interval']}")


def _decay_factor(option: SchedOption, tree: dict[str, object], done: ImportResult) -> None:
    try:
        factor = float(option.value)
    except ValueError:
        factor = -1.0
    if not 0 < factor < 1:
        message = f"{option.value!r} is not between 0 and 1, and is ignored, as in PBS"
        done.note(Verdict.DIFFERS, option.line, option.name, message)
        return
    tree["decay"] = factor
    # the number of windows after which a hundredth is left
    tree["depth"] = next((n for n in range(1, 1000) if factor**n < 0.01), 1000)
    done.note(Verdict.TRANSLATED, option.line, option.name, f"fair_share.decay, over {tree['depth']} windows")


def _entity(option: SchedOption, tree: dict[str, object], done: ImportResult) -> None:
    level = ENTITIES.get(option.value.lower())
    if level is None:
        message = f"fair share has no level {option.value}: user is used"
        done.note(Verdict.BLOCKER, option.line, option.name, message)
    else:
        tree["levels"] = [level]
        done.note(Verdict.TRANSLATED, option.line, option.name, f"fair_share.levels = {level}")


def _usage(option: SchedOption, _tree: dict[str, object], done: ImportResult) -> None:
    if option.value.replace(" ", "") in ("ncpus*walltime", "walltime*ncpus"):
        done.note(Verdict.TRANSLATED, option.line, option.name, "use is counted in cpu-seconds held")
    else:
        message = f"{option.value}: schedd always counts cpu-seconds held, which includes idle cpus of a job"
        done.note(Verdict.DIFFERS, option.line, option.name, message)


def _unknown_shares(option: SchedOption, tree: dict[str, object], done: ImportResult) -> None:
    try:
        shares = float(option.value)
        if not 0 <= shares <= 1e9:
            raise ValueError
    except ValueError:
        message = f"{option.value!r} is not a number from 0 to 10^9, and is ignored"
        done.note(Verdict.DIFFERS, option.line, option.name, message)
    else:
        tree["unlisted_group"], tree["shares"] = _UNKNOWN, {_UNKNOWN: shares}
        message = (
            f"fair_share.unlisted_group = {_UNKNOWN}: all users that are not listed have {shares:g} "
            "shares together"
        )
        done.note(Verdict.TRANSLATED, option.line, option.name, message)


def _no_shares(_option: SchedOption, _tree: dict[str, object], _done: ImportResult) -> None:
    """Add no finding: ``_translate_missing_shares`` does."""


FAIR_SHARE_PARTS: Mapping[str, Callable[[SchedOption, dict[str, object], ImportResult], None]] = {
    "half_life": _decay_time,
    "fairshare_decay_time": _decay_time,
    "fairshare_decay_factor": _decay_factor,
    "fairshare_entity": _entity,
    "fairshare_usage_res": _usage,
    "unknown_shares": _unknown_shares,
    "fairshare_enforce_no_shares": _no_shares,
}
"""The options of fair share, by name."""


def _shares(groups: ResourceGroups, tree: dict[str, object], done: ImportResult) -> None:
    for line, (text, reason) in groups.bad.items():
        message = f"{text!r} is left out, as in pbs_sched: {reason}"
        done.note(Verdict.DIFFERS, line, "shares", message, _FILE)
    if not groups.shares:
        return
    unknown: dict[str, float] = cast("dict[str, float]", tree.get("shares") or {})
    tree["shares"] = {**unknown, **groups.shares}
    if groups.parents:
        tree["parents"] = dict(groups.parents)
    for name in groups.shares:
        line = groups.groups[name] if name in groups.groups else groups.leaves[name][0]
        message = "fair_share.shares" + (" and fair_share.parents" if name in groups.parents else "")
        done.note(Verdict.TRANSLATED, line, "shares", message, _FILE)


def _translate_missing_shares(shares: ResourceGroups, source: SchedConfig, tree: dict[str, object]) -> None:
    """Add findings about users without shares: by default OpenPBS never runs their jobs; TORQUE runs them
    last.
    """
    done, option = source.done, source.get("fairshare_enforce_no_shares")
    enforced = source.openpbs and (option is None or option.on)
    line, level = option.line if option is not None else 0, fair_share_level(source)
    nobody = [name for name, (_, _, part) in shares.leaves.items() if not part]
    listed = cast("dict[str, float]", tree.get("shares") or {})
    open_to_all = bool(listed.get(_UNKNOWN))
    strangers = not open_to_all and bool(shares.leaves)
    if "unlisted_group" not in tree and shares.leaves:
        tree["unlisted"] = 0.0
    if not enforced or not (nobody or strangers or not shares.leaves):
        if option is not None:
            message = "it is off: jobs without shares come last" if not option.on else "all users have shares"
            done.note(Verdict.NOT_NEEDED, line, option.name, message)
        return
    name = "fairshare_enforce_no_shares"
    if not shares.leaves:
        message = (
            "resource_group names no user, and unknown_shares is not set. PBS then runs no job while "
            "fair_share is on: check whether that file was read. In schedd all shares are equal"
        )
        if not open_to_all:
            done.note(Verdict.DIFFERS, line, name, message)
        elif option is not None:
            done.note(Verdict.NOT_NEEDED, line, name, "all users have shares")
        return
    if nobody and level in _LIMITED:
        for one in nobody:
            done.limit(amount=0, what="jobs", who=level, name=one)
        done.note(Verdict.TRANSLATED, line, name, f"limits of 0 jobs for {', '.join(nobody)}")
    elif nobody:
        message = f"schedd would run jobs of {', '.join(nobody)}: stop those queues on the server"
        done.note(Verdict.BLOCKER, line, name, message)
    if strangers:
        message = (
            f"PBS never runs jobs of a {level} that is not in resource_group (unknown_shares is not set); "
            "schedd "
        )
        message += (
            f'runs them last. To forbid them, write [[limits]] with amount = 0 and who = "{level}", '
            "and one with "
        )
        message += "a large amount and name for each that may run"
        done.note(Verdict.BLOCKER, line, name, message)
