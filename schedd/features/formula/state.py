"""What the engine knows of the priority formula in force, and the values that its terms take from jobs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import is_
from typing import Literal

from schedd.engine.component.ranking_hooks import owner_shares
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.features.formula.settings import FormulaSettings
from schedd.features.formula.terms import FormulaJobRow, FormulaTerms, unknown_names
from schedd.plan.schema import FOUND, KEYS, MOMENT, NUMBER, SHARED, declared
from schedd.policy.expressions import FormulaError, parse_formula
from schedd.policy.protocol import FAIR_SHARE_TERMS
from schedd.policy.site import SitePolicy
from schedd.wire import JobFacts, ServerFacts

SERVER_FORMULA = "job_sort_formula"
SERVER_THRESHOLD = "job_sort_formula_threshold"


@dataclass(slots=True)
class FormulaState:
    """The component's state."""

    rows: dict[str, tuple[JobFacts, ParsedRequest, FormulaJobRow]] = declared(FOUND, make=dict)
    """By job: its inputs of the terms, after the facts and the request that they were made from."""
    basis: tuple[object, ...] = declared(SHARED, default=())
    """Common inputs of all rows; another value makes all rows invalid."""
    totals: Mapping[str, float] | None = declared(MOMENT, default=None)  # terms about the whole cluster
    examined: int = declared(NUMBER, default=0)  # when values were last compared with the threshold
    left: dict[str, None] = declared(KEYS, make=dict)  # jobs still to be compared with it
    had_threshold: bool = declared(NUMBER, default=False)  # jobs may wait because of a threshold
    in_force: bool = declared(SHARED, default=False, carried=True)  # a formula ranks the jobs
    found: "tuple[SitePolicy, ServerFacts, FormulaInForce | None] | None" = declared(MOMENT, default=None)
    """The formula in force under this policy and server. A cache: see ``formula_in_force``."""


@dataclass(frozen=True, slots=True)
class FormulaInForce:
    """The formula that ranks the jobs."""

    terms: FormulaTerms
    threshold: float | None  # only jobs with a higher value are planned
    source: Literal["site", "server"]

    @property
    def text(self) -> str:
        return self.terms.expression.text

    @property
    def name(self) -> str:
        """The setting that holds it."""
        return SERVER_FORMULA if self.source == "server" else "formula.expression"


@lru_cache(maxsize=100)
def _parsed(text: str) -> FormulaTerms | FormulaError:
    try:
        return FormulaTerms(parse_formula(text))
    except FormulaError as error:
        return error


@lru_cache(maxsize=100)
def _in_force(settings: FormulaSettings, text: str, threshold: str) -> FormulaInForce | FormulaError | None:
    own = settings.expression.strip()
    if own:
        found = _parsed(own)
        limit = settings.threshold
    elif settings.from_server and text.strip():
        found = _parsed(text.strip())
        limit = settings.threshold if settings.threshold is not None else _number_or_none(threshold)
    else:
        return None
    if isinstance(found, FormulaError):
        return found
    return FormulaInForce(found, limit, "site" if own else "server")


def _number_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def find_formula(settings: FormulaSettings, server: ServerFacts) -> FormulaInForce | None:
    """Return the formula in force; None: jobs are ranked by weights."""
    attributes = server.attributes
    text = attributes.get(SERVER_FORMULA, "")
    if not (text or settings.expression):  # each batch asks; most sites have no formula
        return None
    found = _in_force(settings, text, attributes.get(SERVER_THRESHOLD, ""))
    return found if isinstance(found, FormulaInForce) else None


def formula_in_force(state: EngineState) -> FormulaInForce | None:
    """Return the formula in force; None: jobs are ranked by weights."""
    part: FormulaState = state.parts[FormulaState]
    if part.found is None or part.found[0] is not state.site or part.found[1] is not state.server:
        part.found = state.site, state.server, find_formula(state.site.part(FormulaSettings), state.server)
    return part.found[2]


def formula_state(state: EngineState) -> FormulaState:
    """The component's part of the engine's state."""
    found: FormulaState = state.parts[FormulaState]  # no call: arrivals ask often
    return found


def formula_faults(state: EngineState) -> list[str]:
    """Return what an admin must know of the formula: why it is not used, or what some terms lack."""
    settings, attributes = state.site.part(FormulaSettings), state.server.attributes
    text, threshold = attributes.get(SERVER_FORMULA, ""), attributes.get(SERVER_THRESHOLD, "")
    found = _in_force(settings, text, threshold)
    if isinstance(found, FormulaError):
        return [f"the server's {SERVER_FORMULA} cannot be used, jobs are ranked by weights: {found}"]
    if found is None:
        return []
    faults = [
        f"{found.name}: {name} is no term and no resource of the server; it counts as 0"
        for name in unknown_names(found.terms.expression, state.limits.types)
    ]
    if found.terms.needs_shares and owner_shares(state) is None:
        names = sorted(FAIR_SHARE_TERMS & found.terms.expression.names)
        count = f"{', '.join(names)} count{'s' if len(names) == 1 else ''}"
        faults.append(f"{found.name}: {count} as 0, since the site has no table fair_share")
    read = found.source == "server" and settings.threshold is None
    if read and threshold and found.threshold is None:
        faults.append(f"{SERVER_THRESHOLD} = {threshold} is no number; jobs below it are planned")
    return faults


def job_row(state: EngineState, terms: FormulaTerms, record: JobRecord) -> FormulaJobRow:
    """Return what terms take from a job, computed again where anything that it depends on changed."""
    return job_rows(state, terms, (record,))[0]


def job_rows(state: EngineState, terms: FormulaTerms, records: Iterable[JobRecord]) -> list[FormulaJobRow]:
    """Return what terms take from these jobs, computed again where anything that it depends on changed."""
    part, types = formula_state(state), state.limits.types
    shared, shares = state.limits.shared, owner_shares(state) if terms.needs_shares else None
    basis = (terms, types, shared, shares.tree if shares is not None else None)
    if len(part.basis) != len(basis) or not all(map(is_, part.basis, basis)):
        part.basis, part.rows = basis, {}
    rows, found = part.rows, []
    for record in records:
        facts, understood = record.facts, record.understood
        known = rows.get(facts.id)
        if known is None or known[0] is not facts or known[1] is not understood:
            claim = state.limits.claim(facts, understood)  # an arrival needs it for limits, too
            row = terms.row(facts, understood, types, shared, shares, claim)
            known = rows[facts.id] = (facts, understood, row)
        found.append(known[2])
    return found
