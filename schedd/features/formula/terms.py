"""Terms of formulas: what each name means for a job.

A name that is none of the terms below is a resource: the amount that the job requests, in seconds, KiB or
units; 0 if it requests none. A name that is compared with a text is one of ``TEXT_TERMS``, or a resource.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from schedd.dialect.deadline import read_deadline
from schedd.dialect.errors import RequestError
from schedd.dialect.units import TIME_RESOURCES, parse_size, parse_walltime
from schedd.engine.facts.job_requests import ParsedRequest, is_eligible
from schedd.engine.facts.pools import make_claim
from schedd.model import FOREVER
from schedd.policy.expressions import Columns, Expression, Floats
from schedd.policy.limits import Claim
from schedd.policy.priority import SiteWeights, deadline_value
from schedd.policy.protocol import FAIR_SHARE_TERMS, OwnerShare, OwnerShares
from schedd.wire import JobFacts, NodeFacts, QueueFacts, ResourceTypes, ServerFacts
from schedd.wire.quick_init import quick_init

_GENERAL_LIMIT: Final = re.compile(r"\[[ugpo]:PBS_(?:GENERIC|ALL)=([^]]*)\]")
"""General limit (each user, group, project or job) in a list such as ``[u:PBS_GENERIC=40],[u:ann=5]``."""
_NO_DEADLINE_S: Final = 10 * 366 * 86_400  # `deadline_left` of jobs without a deadline
_SIZES: Final = frozenset({"mem", "vmem", "pmem", "pvmem", "file", "hbmem"})

TERMS: Final[Mapping[str, str]] = {
    "eligible_time": "seconds since the job became eligible; 0 while it is not",
    "accrue_type": "2 if the job is eligible, else 1, as in OpenPBS",
    "queue_priority": "priority of the job's queue",
    "job_priority": "`qsub -p`",
    "qos_priority": "priority of the job's QOS (`[qos.levels.NAME]`); 0 without one",
    "fairshare_perc": "target share of the job's place in the fair-share tree, 0 to 1",
    "fair_share_perc": "the same",
    "fairshare_tree_usage": "effective usage of the job's place in the fair-share tree, 0 to 1",
    "fairshare_factor": "`2 ** -(fairshare_tree_usage / fairshare_perc)`, 0 to 1",
    "ncpus": "cpus of the whole request",
    "cpus": "the same",
    "size": "the same",
    "nodes": "nodes of the request",
    "nodect": "the same",
    "gpus": "gpus of the whole request",
    "ngpus": "the same",
    "walltime": "requested seconds; 0 if neither the job nor a default says so",
    "planned_walltime": "seconds for which the job is planned",
    "predicted_run_time": "predicted run time in seconds; the planned walltime without a prediction",
    "age": "seconds since submission",
    "xfactor": "`(eligible_time + planned_walltime) / planned_walltime`, as Maui's XFACTOR",
    "deadline": "pressure of the deadline as in `[priority]`, 0 without a deadline",
    "deadline_left": "seconds until the latest start that meets the deadline; 10 years without one",
    "has_deadline": "1 for jobs with a deadline",
    "class_points": "points of the job's class (`[classes.NAME]`)",
    "array": "1 for jobs of an array",
    "total_cpus": "cpus of all nodes that are not down",
    "total_nodes": "nodes that are not down",
    "total_gpus": "gpus of all nodes that are not down",
    "total_mem": "memory of all nodes that are not down, in KiB",
}
"""Terms with their meaning. Further names are ``queue.NAME`` and ``server.NAME`` (numeric attributes such as
``queue.max_run`` or ``server.resources_default.walltime``) and resources."""
TEXT_TERMS: Final[Mapping[str, Callable[[JobFacts], str]]] = {
    "account": lambda facts: facts.account,
    "group": lambda facts: facts.group,
    "job_name": lambda facts: facts.name,
    "project": lambda facts: facts.project,
    "queue": lambda facts: facts.queue,
    "user": lambda facts: facts.owner.partition("@")[0],
}
LABEL_TERMS: Final = frozenset({"qos"})
"""Names that are compared with texts and stand for a label of the job: see ``Component.labels``."""
REPLACEABLE: Final = frozenset(
    {
        *(
            "age",
            "array",
            "class_points",
            "cpus",
            "deadline_left",
            "gpus",
            "has_deadline",
            "planned_walltime",
        ),
        *("predicted_run_time", "size", "total_cpus", "total_gpus", "total_mem", "total_nodes", "xfactor"),
    }
)
"""Terms that OpenPBS does not have: a resource of the same name takes the place of the term."""


@quick_init
@dataclass(frozen=True, slots=True)
class Circumstances:
    """Inputs of terms that do not come from the job."""

    now: int
    types: ResourceTypes
    shared: frozenset[str]
    queues: Mapping[str, QueueFacts]
    server: ServerFacts
    weights: SiteWeights
    labels: Callable[[JobFacts], Mapping[str, str]] = lambda _: {}
    """The labels of a job, such as its QOS: see ``Component.labels``."""
    points: Callable[[JobFacts], float] = lambda _: 0.0  # the priority of a job's QOS
    shares: OwnerShares | None = None  # fair shares of owners; None: there is no fair share
    totals: Mapping[str, float] = field(default_factory=dict)  # see `cluster_totals`


class FormulaJobRow(NamedTuple):
    """What terms take from one job. It stays as long as the job's request and attributes."""

    facts: JobFacts
    owner: Hashable  # key of its owner in the fair shares
    numbers: tuple[float, ...]
    """When it became eligible (infinite: it is not), its submission, its planned walltime, the latest start
    that meets its deadline (infinite without one); then by ``FormulaTerms.fixed``."""
    texts: tuple[str, ...]  # by `FormulaTerms.texts`
    own: tuple[tuple[str, float], ...]
    """Resources of the job that have the name of a term, and take its place: see ``REPLACEABLE``."""


_TIMES_OF_ROW: Final = 4


class FormulaTerms:
    """The terms of one formula: finds their values for jobs."""

    __slots__ = ("_changing", "_replaceable", "expression", "fixed", "needs_shares", "texts")

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self._changing = tuple(
            sorted(name for name in expression.names if name in _CHANGING or _has_prefix(name))
        )
        self.fixed = tuple(sorted(expression.names.difference(self._changing)))
        """Names with values that depend only on the job's request and attributes."""
        self._replaceable = tuple(sorted(REPLACEABLE & expression.names))
        self.texts = tuple(sorted(expression.text_names))
        self.needs_shares = not FAIR_SHARE_TERMS.isdisjoint(expression.names)

    def row(
        self,
        facts: JobFacts,
        understood: ParsedRequest,
        types: ResourceTypes,
        shared: frozenset[str],
        shares: OwnerShares | None,
        claim: Claim | None = None,
    ) -> FormulaJobRow:
        """Return what the terms take from this job. ``claim``: its claim, if it is known."""
        since = max(facts.eligible if facts.eligible is not None else facts.submitted, facts.not_before or 0)
        deadline = read_deadline(facts.resources, facts.submitted)
        texts = {name.lower(): text for name, text in facts.resources.items()}
        amounts = (claim or make_claim(facts, understood, shared, types)).amounts
        return FormulaJobRow(
            facts=facts,
            owner=shares.key(facts) if shares is not None and self.needs_shares else (),
            numbers=(
                since if is_eligible(facts, FOREVER) else inf,
                facts.submitted,
                understood.walltime,
                deadline - understood.walltime if deadline is not None else inf,
                *[_fixed(name, facts, understood, amounts, texts, types) for name in self.fixed],
            ),
            texts=tuple([_text(name, facts, texts) for name in self.texts]),
            own=tuple(
                [
                    (name, _resource_number(name, texts[name], types))
                    for name in self._replaceable
                    if name in texts
                ]
            ),
        )

    def columns(
        self, rows: Sequence[FormulaJobRow], around: Circumstances, predicted: Sequence[float | None] = ()
    ) -> Columns:
        """Return the values of all terms for these jobs. ``predicted`` are their predicted run times."""
        numbers: dict[str, Floats | float] = {}
        table = np.array([row.numbers for row in rows], np.float64).reshape(
            len(rows), _TIMES_OF_ROW + len(self.fixed)
        )
        for place, name in enumerate(self.fixed, _TIMES_OF_ROW):
            numbers[name] = table[:, place]
        times = _Times(rows, table[:, :_TIMES_OF_ROW], around, predicted)
        for name in self._changing:
            numbers[name] = _CHANGING[name](times) if name in _CHANGING else _attribute(name, times)
        if self._replaceable:
            numbers |= _replaced(numbers, rows)
        texts = {name: [row.texts[place] for row in rows] for place, name in enumerate(self.texts)}
        for name in LABEL_TERMS & texts.keys():
            texts[name] = [around.labels(row.facts).get(name, "") for row in rows]
        return Columns(len(rows), numbers, texts)

    def single_columns(
        self, row: FormulaJobRow, around: Circumstances, predicted: float | None = None
    ) -> Columns:
        """Return the values of all terms for one job, as ``columns`` does, without arrays."""
        numbers = dict(zip(self.fixed, row.numbers[_TIMES_OF_ROW:], strict=True))
        job = _JobTimes(row, around, predicted)
        for name in self._changing:
            find = _CHANGING_OF_JOB.get(name)
            numbers[name] = find(job) if find is not None else _job_attribute(name, row.facts.queue, around)
        numbers.update(row.own)
        texts = {name: (row.texts[place],) for place, name in enumerate(self.texts)}
        for name in LABEL_TERMS & texts.keys():
            texts[name] = (around.labels(row.facts).get(name, ""),)
        return Columns(1, numbers, texts)


def cluster_totals(nodes: Sequence[NodeFacts]) -> dict[str, float]:
    """Return the terms about the whole cluster; nodes that are down do not count."""
    up = [node for node in nodes if node.state != "down"]
    return {
        "total_cpus": float(sum([node.cpus for node in up])),
        "total_gpus": float(sum([node.gpus for node in up])),
        "total_mem": float(sum([node.mem for node in up])),
        "total_nodes": float(len(up)),
    }


def unknown_names(expression: Expression, types: ResourceTypes) -> Iterator[str]:
    """Yield names that are no term and no resource of the server; none if it reports no resources."""
    if not types.reported:
        return
    for name in sorted(expression.names):
        if name not in TERMS and not _has_prefix(name) and not types.resource_type(name):
            yield name
    for name in sorted(expression.text_names):
        if name not in TEXT_TERMS and name not in LABEL_TERMS and not types.resource_type(name):
            yield name


# ---- values that stay -----------------------------------------------------------------------------


def _replaced(
    numbers: Mapping[str, Floats | float], rows: Sequence[FormulaJobRow]
) -> dict[str, Floats | float]:
    """Return the columns of terms that a job replaces by a resource of the same name."""
    found: dict[str, Floats | float] = {}
    for place, row in enumerate(rows):
        for name, value in row.own:
            if name not in found:
                found[name] = np.array(np.broadcast_to(numbers[name], (len(rows),)), np.float64)
            np.asarray(found[name])[place] = value
    return found


def _text(name: str, facts: JobFacts, texts: Mapping[str, str]) -> str:
    return TEXT_TERMS[name](facts) if name in TEXT_TERMS else texts.get(name.lower(), "")


def _has_prefix(name: str) -> bool:
    return name.startswith(("queue.", "server."))


_AMOUNTS: Final[Mapping[str, str]] = {
    "ncpus": "cpus",
    "cpus": "cpus",
    "size": "cpus",
    "nodes": "nodes",
    "nodect": "nodes",
    "gpus": "gpus",
    "ngpus": "gpus",
}


def _fixed(
    name: str,
    facts: JobFacts,
    understood: ParsedRequest,
    amounts: Mapping[str, int],
    texts: Mapping[str, str],
    types: ResourceTypes,
) -> float:
    if name in _AMOUNTS:
        return float(amounts.get(_AMOUNTS[name], 0))
    if name == "walltime":
        return float(understood.requested_walltime)
    if name == "planned_walltime":
        return float(understood.walltime)
    if name == "job_priority":
        return float(facts.priority)
    if name == "array":
        return float(bool(facts.array))
    text = texts.get(name.lower())
    if text is not None:
        return _resource_number(name.lower(), text, types)
    return float(amounts.get(name, 0)) if name not in types.units else 0.0


def _resource_number(name: str, text: str, types: ResourceTypes) -> float:
    """The amount of a resource; 0 for a text."""
    kind = types.resource_type(name) if types.reported else ""
    text = text.strip()
    try:
        if name in TIME_RESOURCES or (kind in ("", "long") and ":" in text):
            return float(parse_walltime(text))
        if kind == "size" or (not kind and name in _SIZES):
            return float(parse_size(text))
        if kind == "boolean" or text.lower() in ("true", "false"):
            return float(text.lower() in ("true", "t", "y", "1"))
        number = float(text)
        return number if isfinite(number) else 0.0
    except RequestError:
        return 0.0
    except ValueError:
        pass
    try:
        return float(parse_size(text)) if not kind else 0.0
    except RequestError:
        return 0.0


# ---- values that change ---------------------------------------------------------------------------


class _Times:
    """Rows of jobs, with columns of their times."""

    __slots__ = (
        *("around", "eligible", "latest", "owners", "planned", "predicted", "rows", "since", "submitted"),
    )

    def __init__(
        self,
        rows: Sequence[FormulaJobRow],
        times: Floats,
        around: Circumstances,
        predicted: Sequence[float | None],
    ) -> None:
        self.rows, self.around, self.predicted = rows, around, predicted
        self.owners: tuple[list[OwnerShare], npt.NDArray[np.int64]] | None = None
        """Shares of the distinct owners, and the place of each row's owner; None: not yet looked up."""
        self.since: Floats = times[:, 0]
        self.submitted: Floats = times[:, 1]
        self.planned: Floats = times[:, 2]
        self.latest: Floats = times[:, 3]
        self.eligible: Floats = np.maximum(0.0, around.now - self.since)

    def by_queue(self, find: Callable[[str], float]) -> Floats:
        """A column of values for each row's queue."""
        queues = [row.facts.queue for row in self.rows]
        found = {queue: find(queue) for queue in set(queues)}
        return np.array([found[queue] for queue in queues], np.float64)

    def share(self, find: Callable[[OwnerShare], float]) -> Floats:
        """A column of values for the fair share of each row's owner; 0 without fair share."""
        shares = self.around.shares
        if shares is None:
            return np.zeros(len(self.rows))
        if self.owners is None:
            places: dict[Hashable, int] = {}
            rows = [places.setdefault(row.owner, len(places)) for row in self.rows]
            self.owners = [shares.share(owner) for owner in places], np.array(rows, np.int64)
        found, rows_of_owners = self.owners
        return np.array([find(one) for one in found], np.float64)[rows_of_owners]


def _eligible(times: _Times) -> Floats:
    return np.where(times.since <= times.around.now, 2.0, 1.0)


def _age(times: _Times) -> Floats:
    return np.maximum(0.0, times.around.now - times.submitted)


def _queue_priority(queue: str, around: Circumstances) -> float:
    own, known = around.weights.queues, around.queues.get(queue)
    return own.get(queue, own.get("*", float(known.priority) if known is not None else 0.0))


def _qos_priority(times: _Times) -> Floats:
    return np.array([times.around.points(row.facts) for row in times.rows], np.float64)


def _expansion(times: _Times) -> Floats:
    return np.divide(times.eligible + times.planned, np.maximum(times.planned, 1.0))


def _predicted(times: _Times) -> Floats:
    if not times.predicted:
        return times.planned
    predicted = np.array([np.nan if one is None else one for one in times.predicted], np.float64)
    return np.where(np.isnan(predicted), times.planned, predicted)


def _deadline(times: _Times) -> Floats:
    pairs = zip(times.latest.tolist(), times.planned.tolist(), strict=True)
    return np.array([_pressure(latest, walltime, times.around) for latest, walltime in pairs], np.float64)


def _pressure(latest: float, walltime: float, around: Circumstances) -> float:
    """The value of a deadline."""
    weights = around.weights
    if latest == inf:
        return 0.0
    return deadline_value(
        around.now,
        int(latest + walltime),
        int(walltime),
        lead=weights.deadline_lead,
        least=weights.deadline_least,
        most=weights.deadline_most,
        keep_lost=weights.deadline_lost == "keep",
    )


def _deadline_left(times: _Times) -> Floats:
    return np.minimum(times.latest - times.around.now, _NO_DEADLINE_S)


def _class_points(times: _Times) -> Floats:
    return np.array([_job_class_points(row.facts, times.around) for row in times.rows], np.float64)


def _job_class_points(facts: JobFacts, around: Circumstances) -> float:
    classes = around.weights.classes.values()
    return max((one.points for one in classes if one.takes(facts)), default=0.0)


def _total(name: str) -> Callable[[_Times], Floats | float]:
    return lambda times: times.around.totals.get(name, 0.0)


_CHANGING: Final[Mapping[str, Callable[[_Times], Floats | float]]] = {
    "accrue_type": _eligible,
    "age": _age,
    "class_points": _class_points,
    "deadline": _deadline,
    "deadline_left": _deadline_left,
    "eligible_time": lambda times: times.eligible,
    "fairshare_perc": lambda times: times.share(lambda one: one.target),
    "fair_share_perc": lambda times: times.share(lambda one: one.target),
    "fairshare_tree_usage": lambda times: times.share(lambda one: one.effective_usage),
    "fairshare_factor": lambda times: times.share(lambda one: one.factor),
    "has_deadline": lambda times: np.asarray(times.latest != inf, np.float64),
    "predicted_run_time": _predicted,
    "qos_priority": _qos_priority,
    "queue_priority": lambda times: times.by_queue(lambda queue: _queue_priority(queue, times.around)),
    "xfactor": _expansion,
    **{name: _total(name) for name in ("total_cpus", "total_gpus", "total_mem", "total_nodes")},
}


class _JobTimes:
    """The row of one job, with its times."""

    __slots__ = ("around", "eligible", "latest", "planned", "predicted", "row", "since", "submitted")

    def __init__(self, row: FormulaJobRow, around: Circumstances, predicted: float | None) -> None:
        self.row, self.around, self.predicted = row, around, predicted
        self.since, self.submitted, self.planned, self.latest = row.numbers[:_TIMES_OF_ROW]
        self.eligible = max(0.0, around.now - self.since)

    def share(self, find: Callable[[OwnerShare], float]) -> float:
        """A value of the fair share of the job's owner; 0 without fair share."""
        shares = self.around.shares
        return find(shares.share(self.row.owner)) if shares is not None else 0.0


def _job_total(name: str) -> Callable[[_JobTimes], float]:
    return lambda job: job.around.totals.get(name, 0.0)


_CHANGING_OF_JOB: Final[Mapping[str, Callable[[_JobTimes], float]]] = {
    "accrue_type": lambda job: 2.0 if job.since <= job.around.now else 1.0,
    "age": lambda job: max(0.0, job.around.now - job.submitted),
    "class_points": lambda job: _job_class_points(job.row.facts, job.around),
    "deadline": lambda job: _pressure(job.latest, job.planned, job.around),
    "deadline_left": lambda job: min(job.latest - job.around.now, _NO_DEADLINE_S),
    "eligible_time": lambda job: job.eligible,
    "fairshare_perc": lambda job: job.share(lambda one: one.target),
    "fair_share_perc": lambda job: job.share(lambda one: one.target),
    "fairshare_tree_usage": lambda job: job.share(lambda one: one.effective_usage),
    "fairshare_factor": lambda job: job.share(lambda one: one.factor),
    "has_deadline": lambda job: float(job.latest != inf),
    "predicted_run_time": lambda job: job.planned if job.predicted is None else job.predicted,
    "qos_priority": lambda job: job.around.points(job.row.facts),
    "queue_priority": lambda job: _queue_priority(job.row.facts.queue, job.around),
    "xfactor": lambda job: (job.eligible + job.planned) / max(job.planned, 1.0),
    **{name: _job_total(name) for name in ("total_cpus", "total_gpus", "total_mem", "total_nodes")},
}
"""The same as ``_CHANGING`` for one job."""


def _attribute(name: str, times: _Times) -> Floats | float:
    if name.startswith("server."):
        return _job_attribute(name, "", times.around)
    return times.by_queue(lambda queue: _job_attribute(name, queue, times.around))


def _job_attribute(name: str, queue: str, around: Circumstances) -> float:
    """A numeric attribute of a job's queue or of the server: a limit or a default, ``Priority``, or 0."""
    whose, _, attribute = name.partition(".")
    if whose == "server":
        return _attribute_number(attribute, around.server.limits, around.server.defaults, around.types)
    known = around.queues.get(queue)
    if known is None:
        return 0.0
    if attribute.lower() == "priority":
        return float(known.priority)
    return _attribute_number(attribute, known.limits, known.defaults, around.types)


def _attribute_number(
    attribute: str, limits: Mapping[str, str], defaults: Mapping[str, str], types: ResourceTypes
) -> float:
    resource = attribute.rpartition(".")[2]
    if attribute.startswith("resources_default."):
        text = defaults.get(resource, "")
    else:
        text = limits.get(attribute, "")
        general = _GENERAL_LIMIT.search(text)
        text = general[1] if general is not None else "" if "=" in text else text
        text = text.strip('" ')
    return _resource_number(resource.lower(), text, types) if text else 0.0
