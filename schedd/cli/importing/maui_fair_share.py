"""Fair share of Maui: FSPOLICY and its like, FSTARGET (Maui Administrator's Guide, 6.3)."""

from collections.abc import Mapping, Sequence

from schedd.cli.importing.maui_entries import OWNERS, MauiEntry
from schedd.cli.importing.maui_share_tree import SHARE_TREE, translate_share_tree
from schedd.cli.importing.maui_weights import FAIR_SHARE_WEIGHTS, MauiWeights
from schedd.cli.importing.result import ImportResult, Verdict, duration, number

FAIR_SHARE = frozenset({"FSPOLICY", "FSINTERVAL", "FSDEPTH", "FSDECAY"})
"""Parameters that this module translates, besides FSTARGET and Moab's FSTREE."""
_WINDOWS = {"FSINTERVAL": ("interval", 43_200), "FSDEPTH": ("depth", 8), "FSDECAY": ("decay", 1.0)}
"""Key in fair_share and default of each parameter, as in Maui's program; its guide names other defaults."""
_MAX_TARGET = 1e9
_BOUNDS = {"interval": (60, 366 * 86_400), "depth": (1, 1000), "decay": (0, 1)}
_Targets = dict[str, dict[str, tuple[MauiEntry, str, float]]]


def translate_fair_share(
    weights: MauiWeights, entries: Sequence[MauiEntry], done: ImportResult, moab: bool = False
) -> bool:
    """Write the table fair_share if fair share is on; return whether it is."""
    targets = _targets(entries, done)
    said = {entry.name: entry for entry in entries if entry.name in FAIR_SHARE}
    policy = said.get("FSPOLICY")
    weighed = [part for part in FAIR_SHARE_WEIGHTS if weights.effective_weight(part)]
    levels = [part for part in weighed if FAIR_SHARE_WEIGHTS[part] in targets]
    nodes = [entry for entry in entries if entry.name == SHARE_TREE] if moab else []
    why = ""
    if policy is None:
        why = "there is no FSPOLICY"
    elif policy.value.upper().startswith("NONE"):
        why = "FSPOLICY NONE"
    elif not weighed and not nodes:
        why = "no weight of fair share"
    elif not levels and not nodes:
        why = "no user, group or account with a weighted fair share has an FSTARGET"
    if why:
        for entry in said.values():
            done.note(Verdict.NOT_NEEDED, entry.line, entry.setting, f"fair share is off: {why}")
        for owners in targets.values():
            for entry, _, _ in owners.values():
                done.note(
                    Verdict.NOT_NEEDED, entry.line, f"{entry.setting} FSTARGET", f"fair share is off: {why}"
                )
        for entry in nodes:
            done.note(Verdict.NOT_NEEDED, entry.line, entry.setting, f"fair share is off: {why}")
        return False
    assert policy is not None
    if nodes:
        return _translate_tree(weights, nodes, said, targets, done)
    levels.sort(key=lambda part: -weights.effective_weight(part))
    main = FAIR_SHARE_WEIGHTS[levels[0]]
    tree = done.table("fair_share")
    tree["levels"] = [main]
    done.table("priority")["fair_share"] = 100 * weights.effective_weight(levels[0])
    kind = policy.value.split()[0].upper().rstrip("%^+-")
    message = (
        f"fair_share by {main}: its factor falls from 1 (no use) to 0.5 (use at the target) and "
        "towards 0 (heavy use)"
    )
    if kind != "DEDICATEDPS":
        message += f"; use is counted in cpu-seconds held, not in {kind}"
    if len(weighed) > 1:
        message += f"; only the level with the largest weight is translated, {levels[0]}"
    done.note(Verdict.DIFFERS, policy.line, "FSPOLICY", message)
    _windows(said, tree, done)
    _shares(main, targets, tree, done)
    return True


def _translate_tree(
    weights: MauiWeights,
    nodes: Sequence[MauiEntry],
    said: Mapping[str, MauiEntry],
    targets: _Targets,
    done: ImportResult,
) -> bool:
    """Translate a share tree of Moab; return whether any of it has an equivalent."""
    tree = done.table("fair_share")
    tree["unlisted"] = 0.0
    level = translate_share_tree(nodes, tree, done)
    policy = said["FSPOLICY"]
    if level is None:
        del done.site["fair_share"]
        message = "no share tree with users, groups, accounts or classes: fair share is off"
        done.note(Verdict.BLOCKER, policy.line, "FSPOLICY", message)
        return False
    parts = [part for part, its in FAIR_SHARE_WEIGHTS.items() if its == level]
    weight = max(map(weights.effective_weight, parts), default=0.0)
    done.table("priority")["fair_share"] = 100 * (weight or 1.0)
    message = (
        f"fair_share by {level}: its factor falls from 1 (no use) to 0.5 (use at the target) and towards 0"
    )
    kind = policy.value.split()[0].upper().rstrip("%^+-")
    if kind != "DEDICATEDPS":
        message += f"; use is counted in cpu-seconds held, not in {kind}"
    done.note(Verdict.DIFFERS, policy.line, "FSPOLICY", message)
    _windows(said, tree, done)
    for owners in targets.values():
        for entry, _, _ in owners.values():
            message = "the share tree sets the targets: an FSTARGET outside of it is not supported"
            done.note(Verdict.BLOCKER, entry.line, f"{entry.setting} FSTARGET", message)
    return True


def _targets(entries: Sequence[MauiEntry], done: ImportResult) -> _Targets:
    """Return the targets by level and name."""
    targets: _Targets = {}
    for entry in entries:
        kind = OWNERS.get(entry.name, "queue" if entry.name == "CLASSCFG" else "")
        for name, _, value in entry.attributes() if kind else ():
            if name != "FSTARGET":
                continue
            try:
                target = number(value.rstrip("+-^%"))
                if not 0 <= target <= _MAX_TARGET:
                    raise ValueError(value)
                targets.setdefault(kind, {})[entry.index] = entry, value, target
            except ValueError:
                message = f"{value!r} is not a number from 0 to 10^9, and is ignored"
                done.note(Verdict.DIFFERS, entry.line, f"{entry.setting} FSTARGET", message)
    return targets


def _windows(said: Mapping[str, MauiEntry], tree: dict[str, object], done: ImportResult) -> None:
    for name, (key, default) in _WINDOWS.items():
        tree[key] = default
        if name in said:
            _window(said[name], key, tree, done)
        else:
            done.note(
                Verdict.TRANSLATED,
                0,
                name,
                f"not in the file; Maui's default: fair_share.{key} = {default:g}",
            )


def _window(entry: MauiEntry, key: str, tree: dict[str, object], done: ImportResult) -> None:
    try:
        found = (duration if key == "interval" else int if key == "depth" else number)(entry.value)
        least, most = _BOUNDS[key]
        if not least <= found <= most:
            raise ValueError(entry.value)
        tree[key] = found
    except ValueError:
        used = f"fair_share.{key} = {tree[key]:g}"
        message = f"{entry.value!r} is not understood; Maui's default is used: {used}"
        done.note(Verdict.DIFFERS, entry.line, entry.name, message)
    else:
        done.note(Verdict.TRANSLATED, entry.line, entry.name, f"fair_share.{key} = {tree[key]:g}")


def _shares(level: str, targets: _Targets, tree: dict[str, object], done: ImportResult) -> None:
    shares: dict[str, float] = {}
    for kind, owners in targets.items():
        for index, (entry, value, target) in owners.items():
            setting = f"{entry.setting} FSTARGET"
            if kind != level:
                done.note(
                    Verdict.BLOCKER, entry.line, setting, f"only fair share of the level {level} is supported"
                )
                continue
            if index.upper() == "DEFAULT":
                tree["unlisted"] = target
                message = f"fair_share.unlisted, the share of each {level} without a target"
            else:
                shares[index] = target
                message = "fair_share.shares"
            if value[-1:] in "+-^":
                message = f"{message}: a floor or a ceiling is read as a target"
                done.note(Verdict.DIFFERS, entry.line, setting, message)
            else:
                done.note(Verdict.TRANSLATED, entry.line, setting, message)
    if shares:
        tree["shares"] = shares
    if "unlisted" not in tree:
        least = min(shares.values(), default=1.0)
        tree["unlisted"] = least
        message = (
            "in Maui fair share does not change the priority of those without an FSTARGET; here each has "
            f"the smallest share, {least:g}"
        )
        done.note(Verdict.DIFFERS, 0, "FSTARGET of the others", message)
