"""Fair share of pbs_sched: its options in sched_config and the tree in resource_group."""

from collections.abc import Callable, Mapping

from schedd.cli.importing.result import Imported, Verdict, duration
from schedd.cli.importing.sched_options import Option

__all__ = ["FAIR_SHARE_PARTS", "fair_share"]

_ENTITIES = {
    "euser": "user",
    "egroup": "group",
    "account_name": "account",
    "queue": "queue",
    "project": "project",
}
_WEIGHT = 10_000_000
"""Fair share goes before the keys of the sort."""


def fair_share(option: Option, options: list[Option], beside: Mapping[str, str], done: Imported) -> None:
    """The option fair_share, with all that belongs to it."""
    if not option.on:
        done.note(Verdict.NOT_NEEDED, option.line, option.name, "fair share is off")
        return
    tree = done.table("fair_share")
    tree |= {"levels": ["user"], "interval": 86_400, "decay": 0.5, "depth": 20}
    done.table("priority")["fair_share"] = _WEIGHT
    words = f"priority.fair_share = {_WEIGHT}; see docs/policy.md for the factor"
    done.note(Verdict.TRANSLATED, option.line, option.name, words)
    for other in options:
        if other.name in FAIR_SHARE_PARTS:
            FAIR_SHARE_PARTS[other.name](other, tree, done)
    _shares(beside.get("resource_group", ""), tree, done)


def _decay_time(option: Option, tree: dict[str, object], done: Imported) -> None:
    try:
        tree["interval"] = max(60, duration(option.value))
    except ValueError as error:
        done.note(Verdict.DIFFERS, option.line, option.name, str(error))
    else:
        done.note(Verdict.TRANSLATED, option.line, option.name, f"fair_share.interval = {tree['interval']}")


def _decay_factor(option: Option, tree: dict[str, object], done: Imported) -> None:
    try:
        factor = float(option.value)
    except ValueError:
        factor = -1.0
    if not 0 <= factor <= 1:
        done.note(
            Verdict.DIFFERS, option.line, option.name, f"{option.value!r} is not from 0 to 1, passed over"
        )
        return
    tree["decay"] = factor
    # As many windows as until a hundredth is left.
    tree["depth"] = next((n for n in range(1, 1000) if factor**n < 0.01), 1000)
    done.note(Verdict.TRANSLATED, option.line, option.name, f"fair_share.decay, over {tree['depth']} windows")


def _entity(option: Option, tree: dict[str, object], done: Imported) -> None:
    level = _ENTITIES.get(option.value.lower())
    if level is None:
        words = f"there is no level {option.value}: user is taken"
        done.note(Verdict.DIFFERS, option.line, option.name, words)
    else:
        tree["levels"] = [level]
        done.note(Verdict.TRANSLATED, option.line, option.name, f"fair_share.levels = {level}")


def _usage(option: Option, _tree: dict[str, object], done: Imported) -> None:
    if option.value.replace(" ", "") in ("ncpus*walltime", "walltime*ncpus"):
        done.note(Verdict.TRANSLATED, option.line, option.name, "cpu-seconds held count")
    else:
        words = f"{option.value}: here it is always cpu-seconds held"
        done.note(Verdict.DIFFERS, option.line, option.name, words)


def _unknown_shares(option: Option, tree: dict[str, object], done: Imported) -> None:
    try:
        tree["unlisted"] = float(option.value)
    except ValueError:
        done.note(Verdict.DIFFERS, option.line, option.name, f"{option.value!r} is no number, passed over")
    else:
        words = "fair_share.unlisted: of each who is not listed, not of all of them together"
        done.note(Verdict.DIFFERS, option.line, option.name, words)


def _no_shares(option: Option, _tree: dict[str, object], done: Imported) -> None:
    words = "who has no shares comes last, but is not kept from running"
    done.note(Verdict.DIFFERS if option.on else Verdict.NOT_NEEDED, option.line, option.name, words)


FAIR_SHARE_PARTS: Mapping[str, Callable[[Option, dict[str, object], Imported], None]] = {
    "half_life": _decay_time,
    "fairshare_decay_time": _decay_time,
    "fairshare_decay_factor": _decay_factor,
    "fairshare_entity": _entity,
    "fairshare_usage_res": _usage,
    "unknown_shares": _unknown_shares,
    "fairshare_enforce_no_shares": _no_shares,
}


def _shares(text: str, tree: dict[str, object], done: Imported) -> None:
    """The file resource_group: ``name number parent shares``. Below a group one has a part of its shares."""
    parents: dict[str, str] = {}
    shares: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            name, _, parent, amount = fields[:4]
            shares[name], parents[name] = float(amount), parent.lower()
        except ValueError:
            done.note(Verdict.DIFFERS, number, "resource_group", f"not understood: {line.strip()[:60]}")
    leaves = [name for name in shares if name.lower() not in parents.values()]
    if not leaves:
        return

    def part(name: str) -> float:
        parent = parents[name]
        siblings = sum(shares[other] for other in shares if parents[other] == parent)
        mine = shares[name] / siblings if siblings else 0.0
        above = next((other for other in shares if other.lower() == parent), None)
        return mine if above is None else mine * part(above)

    flat = all(parents[name] == "root" for name in leaves)
    tree["shares"] = {name: shares[name] if flat else round(100 * part(name), 4) for name in leaves}
    if flat:
        done.note(Verdict.TRANSLATED, 0, "resource_group", f"fair_share.shares of {len(leaves)}")
    else:
        words = f"its groups are flattened: fair_share.shares of {len(leaves)}, in per cent of the whole"
        done.note(Verdict.DIFFERS, 0, "resource_group", words)
