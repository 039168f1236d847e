"""Forecasts of ends, computed with each round of expected starts, for the jobs with starts in the round.

The round computes the probability that each job with such a deadline ends in time. It also forecasts the ends
of some other jobs, for deadlines of its own choice: their outcomes calibrate the probabilities also where few
jobs have deadlines.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from schedd.dialect.deadline import read_deadline, read_required_probability
from schedd.engine import EngineState, JobRecord, Phase, PlanSnapshot, job_delay_risk, published_record
from schedd.features.deadline_forecasts.settings import DeadlineForecastSettings
from schedd.features.deadline_forecasts.state import JudgedDeadline, PublishedForecasts, forecasts_state
from schedd.features.prediction.expected_starts import ExpectedStarts, ExpectedStartsInput, NearStarts
from schedd.features.prediction.state import find_predictor
from schedd.model import FOREVER
from schedd.plan.columns import Ints
from schedd.policy.reliability import Life, failure_rates
from schedd.predict import Correction, EndForecast, StartDistribution
from schedd.wire import DeadlineForecastFacts, DeadlinesForecast

_TESTS: Final = 40
"""Forecasts of other jobs in a round, of waiting and of running ones."""
_OPEN_TESTS: Final = 400
"""Forecasts of other jobs with an unknown outcome, of each kind."""
_SAME: Final = 60
"""Maximum change of the earliest deadline without a new event, in seconds."""


def is_forecast_needed(published: PlanSnapshot) -> bool:
    """Return whether a round is needed even if no job waits: there is a deadline with a probability."""
    part = published.part(PublishedForecasts)
    return part.settings.admission and bool(part.requested)


def is_forecast_urgent(published: PlanSnapshot) -> bool:
    """Return whether a running job waits for its judgement: it started before a round saw it."""
    part = published.part(PublishedForecasts)
    if not part.settings.admission:
        return False
    unjudged = (published_record(published, job) for job in part.requested if job not in part.judged)
    return any(
        record is not None
        and record.phase is Phase.RUNNING
        and published.settings.predicts(record.facts.queue)
        for record in unjudged
    )


def begin_round(state: EngineState) -> "DeadlineRound | None":
    """Return the input of a round, copied between two batches; None: nothing is forecast."""
    settings, part, predictor = (
        state.site.part(DeadlineForecastSettings),
        forecasts_state(state),
        find_predictor(state),
    )
    if not settings.admission or predictor is None:
        return None
    return DeadlineRound(
        due_by=state.due_by.copy(),
        judged=dict(part.judged),
        open_waiting=frozenset(part.waiting.open),
        open_running=frozenset(part.running.open),
        corrections=(part.waiting.correction, part.running.correction),
        lives=dict(state.lives),
        half_life=state.site.reliability.half_life,
        prior_rate=1 / settings.node_failures,
        last_round=max(predictor.as_of, predictor.near_as_of),
    )


@dataclass(frozen=True, slots=True)
class DeadlineRound:
    """Input of a round; read-only."""

    due_by: Ints  # by slot
    judged: Mapping[str, JudgedDeadline]
    open_waiting: frozenset[str]
    open_running: frozenset[str]
    corrections: tuple[Correction, Correction]  # of waiting and running jobs
    lives: Mapping[str, Life]
    half_life: int
    prior_rate: float
    last_round: int  # time of the round before

    def events(
        self, given: ExpectedStartsInput, found: ExpectedStarts | NearStarts, name: str
    ) -> Iterator[DeadlinesForecast]:
        """Return the event with the forecasts of a round, if there are any; ``name`` is the prefix of its
        id.
        """
        rates = failure_rates(self.lives, given.now, self.half_life, self.prior_rate)
        ends = EndForecasts(given, found, rates, self.prior_rate)
        facts = (*self._requested(ends), *self._tests(ends, running=False), *self._tests(ends, running=True))
        if facts:
            yield DeadlinesForecast(id=f"{name}:deadlines", time=given.now, jobs=facts)

    def _requested(self, ends: "EndForecasts") -> Iterator[DeadlineForecastFacts]:
        """Return the forecasts of jobs with such a deadline that changed."""
        by_slot = ends.given.by_slot
        for slot in np.flatnonzero(self.due_by < FOREVER).tolist():
            record = by_slot[slot] if slot < len(by_slot) else None
            if record is None:
                continue
            resources = record.facts.resources
            required = read_required_probability(resources)
            deadline = read_deadline(resources, record.facts.submitted)
            forecast = ends.find(record) if required is not None and deadline is not None else None
            if forecast is None or required is None or deadline is None:
                continue
            running = record.phase is Phase.RUNNING
            correction = self.corrections[running]
            raw = forecast.probability(deadline, ends.rate(forecast))
            probability = correction.apply(raw)
            earliest = forecast.earliest_deadline(required, ends.rate(forecast), correction.apply)
            facts = DeadlineForecastFacts(
                job_id=record.id,
                deadline=deadline,
                raw=raw,
                probability=probability,
                required=required,
                earliest=earliest if earliest is not None else FOREVER,
                running=running,
                counts=deadline > ends.given.now and self._is_first(record, running),
            )
            if not self._is_known(facts):
                yield facts

    def _is_first(self, record: JobRecord, running: bool) -> bool:
        if running:
            return record.run.started > self.last_round and record.id not in self.open_running
        return record.id not in self.judged

    def _is_known(self, facts: DeadlineForecastFacts) -> bool:
        known = self.judged.get(facts.job_id)
        return (
            known is not None
            and not facts.counts
            and (known.deadline, known.required) == (facts.deadline, facts.required)
            and int(100 * known.probability) == int(100 * facts.probability)
            and (known.probability >= known.required) == (facts.probability >= facts.required)
            and abs(known.earliest - facts.earliest) < _SAME
        )

    def _tests(self, ends: "EndForecasts", *, running: bool) -> Iterator[DeadlineForecastFacts]:
        """Return forecasts of other jobs for deadlines with a probability that is drawn by the job's id."""
        known = self.open_running if running else self.open_waiting
        room = min(_TESTS, _OPEN_TESTS - len(known))
        if room <= 0:
            return
        jobs = ends.new_runs(self.last_round) if running else ends.new_estimates()
        others = (
            record
            for record in jobs
            if record.id not in known and read_required_probability(record.facts.resources) is None
        )
        for record in sorted(others, key=lambda one: _hash(one.id, b"order"))[:room]:
            forecast = ends.find(record)
            if forecast is None:
                continue
            rate = ends.rate(forecast)
            deadline = forecast.earliest_deadline(_drawn_level(record.id), rate)
            if deadline is None or deadline <= ends.given.now:
                continue
            raw = forecast.probability(deadline, rate)
            yield DeadlineForecastFacts(
                job_id=record.id,
                deadline=deadline,
                raw=raw,
                probability=self.corrections[running].apply(raw),
                running=running,
                counts=True,
            )


class EndForecasts:
    """Forecasts of the ends of jobs from a round of expected starts."""

    def __init__(
        self,
        given: ExpectedStartsInput,
        found: ExpectedStarts | NearStarts,
        rates: Mapping[str, float],
        prior_rate: float,
    ) -> None:
        self.given = given
        self._found = found
        self._rates = rates
        self._unknown = prior_rate

    def rate(self, forecast: EndForecast) -> float:
        """Return the failures per second of all nodes of a job together."""
        return sum(self._rates.get(node, self._unknown) for node in forecast.nodes)

    def new_runs(self, last_round: int) -> list[JobRecord]:
        """Return the jobs that started since the last round."""
        return [
            record
            for record in self.given.by_slot
            if record is not None and record.phase is Phase.RUNNING and record.run.started > last_round
        ]

    def new_estimates(self) -> list[JobRecord]:
        """Return the waiting jobs with an estimate of this round that is learned from, made at submission or
        half-way.
        """
        jobs = {one.job_id for one in self._found.expected if one.kind in ("submission", "waiting")}
        return [record for record in self.given.by_slot if record is not None and record.id in jobs]

    def find(self, record: JobRecord) -> EndForecast | None:
        """Return the forecast of a job's end; None: unknown."""
        given, found, slot = self.given, self._found, record.slot
        run_time = found.predictions.get(record.id)
        if run_time is None:
            return None
        risk = None
        if given.published is not None:
            risk = job_delay_risk(given.published, record.facts, runs=True)
        if record.phase is Phase.RUNNING:
            begun = record.run.started + record.run.suspended_s
            nodes = tuple(share.node for share in record.facts.shares)
            return EndForecast.for_running_job(begun, given.now, run_time, nodes, risk)
        start = found.starts.get(record.id)
        if start is None:
            return None
        names = given.plan.node_names
        nodes = tuple(names[take.row] for take in given.plan.takes(slot) if take.row in names)
        not_before = max(record.facts.not_before or 0, record.back_off.until)
        spread = StartDistribution.from_samples(
            given.now, start.samples, start.expected, int(given.promise[slot]), not_before
        )
        return EndForecast.for_waiting_job(spread, run_time, nodes, risk)


def _hash(job: str, use: bytes) -> int:
    return int.from_bytes(blake2b(job.encode(), digest_size=4, person=use).digest())


def _drawn_level(job: str) -> float:
    """Return the probability of a job's tested deadline, drawn from its id."""
    return (_hash(job, b"level") + 0.5) / (1 << 32)
