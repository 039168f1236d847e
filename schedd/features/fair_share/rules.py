"""Fair share in the engine: runs are charged when they end; running jobs count up to now."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from schedd.engine.component.hook_values import Floats
from schedd.engine.component.job_hooks import charged_jobs, job_labels
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.features.fair_share.settings import FairShareSettings
from schedd.features.fair_share.state import RatedUsage, fair_share_state, share_tree
from schedd.features.fair_share.tree import RatedTree, ShareTree
from schedd.features.fair_share.usage import RATE_UNIT, ChargedRun, Usage
from schedd.plan.criteria import Criterion


def follow_site(state: EngineState) -> None:
    """Keep usage for as long as its windows and owners are those of the tree."""
    part, tree = fair_share_state(state), share_tree(state)
    part.rated = part.shares = None
    if tree is None:
        part.usage = None
    elif part.usage is None or not part.usage.fits(tree):
        part.usage = Usage.empty(tree)
    else:
        part.usage.depth = tree.depth
    demand = state.ranking.demand
    if demand.shares is not None:  # until the next ranking, also after a restart
        state.ranking.demand = replace(demand, shares=present_shares(state, keep=True))


def charge_run(state: EngineState, record: JobRecord, end: int) -> None:
    """Charge an ended run to its owner, or to the users named by a component."""
    usage, tree = _usage(state), share_tree(state)
    if usage is not None and tree is not None:
        charged = _charged_run(state, tree, record, max(end, record.run.started))
        jobs = charged_jobs(state, record)
        if not any(facts is record.facts for facts in jobs):
            usage.record(replace(charged, rate=0))  # the wait is the owner's also if others are charged
        for facts in jobs:
            other = replace(charged, owner=tree.names(facts), waited=0)
            usage.record(charged if facts is record.facts else other)


def forget_old_usage(state: EngineState) -> None:
    """Drop usage that no longer counts."""
    usage, tree = _usage(state), share_tree(state)
    if usage is not None and tree is not None:
        usage.forget(tree, state.now)


def owner_shares(state: EngineState) -> RatedTree | None:
    """Return the shares of the last ranking; before the first one, the shares of the present batch."""
    tree = share_tree(state)
    if tree is None:
        return None
    part = fair_share_state(state)
    if part.rated is None:
        if part.shares is None or part.shares_generation != state.generation:
            part.shares, part.shares_generation = rate_tree(state), state.generation
        return part.shares
    if part.shares is None or part.shares.tree is not tree:
        part.shares = RatedTree(tree, part.rated.at, part.rated.owners, part.rated.used)
    return part.shares


def present_shares(state: EngineState, keep: bool) -> RatedTree | None:
    """Return the shares as of now; ``keep``: the ranking that begins now uses them."""
    found = rate_tree(state)
    if keep and found is not None:
        part = fair_share_state(state)
        part.rated, part.shares = RatedUsage(found.at, found.owners, found.used), found
    return found


def rate_tree(state: EngineState) -> RatedTree | None:
    """Return the tree with the usage up to now and the owners of all jobs; None where fair share is off."""
    tree = share_tree(state)
    if tree is None:
        return None
    usage = _usage(state) or Usage.empty(tree)
    used = usage.decayed(tree, state.now, _running(state, tree))
    owners = tree.owners(record.facts for record in state.records.values())
    return RatedTree(tree, state.now, owners, used, fair_share_state(state).shares)


def follow_time(state: EngineState, _: str) -> None:
    """Renew the usage for searches that count fairness, unless the ranking renews it."""
    if not state.settings.criteria.get(Criterion.UNFAIRNESS) or share_tree(state) is None:
        return
    part = fair_share_state(state)
    ranked = state.site.weights.fair_share and state.ranking.has_effect
    recent = part.rated is not None and part.rated.at > state.now - state.settings.priority_every
    if not recent and (part.rated is None or not ranked):
        present_shares(state, True)


def usage_history(state: EngineState) -> Floats | None:
    """Return decayed (seconds waited, cpu-seconds) by user's number at the last ranking, or None."""
    part, tree = fair_share_state(state), share_tree(state)
    if part.rated is None or tree is None or "user" not in tree.levels:
        return None
    known = part.history
    if known is not None and known[0] is part.rated and known[1] == len(state.owners):
        return known[2]
    at = tree.levels.index("user")
    found = np.zeros((2, len(state.owners)))
    for names, (used, waited) in part.rated.used.items():
        number = state.owners.get(names[at], -1)
        if number >= 0:
            found[:, number] += waited, used
    part.history = part.rated, len(state.owners), found
    return found


def _usage(state: EngineState) -> Usage | None:
    """The usage of ended runs; None also while it is of another tree, until the policy is followed."""
    usage, tree = fair_share_state(state).usage, share_tree(state)
    return usage if usage is not None and tree is not None and usage.fits(tree) else None


def _running(state: EngineState, tree: ShareTree) -> Iterator[ChargedRun]:
    for record in state.records.values():
        if record.phase is Phase.RUNNING:
            yield _charged_run(state, tree, record, max(state.now, record.run.started))


def _charged_run(state: EngineState, tree: ShareTree, record: JobRecord, end: int) -> ChargedRun:
    facts = record.facts
    settings = state.site.part(FairShareSettings)
    cpus = sum(share.cpus * _node_factor(state, settings, share.node) for share in facts.shares)
    qos = job_labels(state, facts).get("qos", "") if settings.charge_qos else ""
    begin, until = record.run.computed_interval(end)
    return ChargedRun(
        owner=tree.names(facts),
        rate=round(RATE_UNIT * cpus * settings.charge_factor(facts.queue, qos)),
        start=begin,
        end=until,
        waited=max(0, record.run.started - record.run_waited_since),
    )


def _node_factor(state: EngineState, settings: FairShareSettings, name: str) -> float:
    """Speed and charge factor of a node."""
    node = state.plan.nodes.get(name)
    if node is None:
        return settings.node_charge_factor(name, frozenset())
    return node.speed * settings.node_charge_factor(name, node.features)
