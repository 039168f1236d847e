"""Random lives of a cluster: a server, a lossy line, and an engine that checks all its invariants."""

from collections.abc import Callable
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from schedd.engine.facts.records import MAY_BREAK, Phase
from schedd.engine.plan_improvements import improvement_event
from schedd.engine.show.job_view import job_view
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.prediction.expected_starts import compute_expected_starts, expected_starts_input
from schedd.features.prediction.state import find_predictor
from schedd.optimize import PlanSearch, SearchSettings
from schedd.plan.latest_starts import latest_starts
from schedd.policy.site import site_policy
from tests.engine.chaos.admin import ByAdmin
from tests.engine.chaos.server import OnServer
from tests.engine.chaos.values import (
    ADAPTERS,
    BOOKING_ACTS,
    FATES,
    JOBS,
    LIMITS,
    MORE,
    NODES,
    POLICIES,
    QUEUES,
    REQUESTS,
    STATES,
    TOUCHES,
    WALLTIMES,
    seeds,
)


class Chaos(OnServer, ByAdmin):
    """A server that lives its life, and a lossy line to an engine that checks all its invariants."""

    @rule(seed=seeds, late=st.booleans())
    def search(self, seed: int, late: bool) -> None:
        """Search on a copy; the result arrives at once, or after the plan has changed."""
        state = self.engine.state
        if self.found is not None and late:
            return
        found, self.found = self.found, None
        if found is None:
            latest = latest_starts(state.plan, state.promise, state.columns, state.now)
            search = PlanSearch(
                state.plan.fork(), state.columns, latest, state.now, SearchSettings(moves=20, seed=seed)
            )
            places = search.run().places
            jobs = {record.slot: record.id for record in state.records.values()}
            found = improvement_event(self.server.event_id(), self.server.now, state.plan, jobs, places)
            if late:
                self.found = found
                return
        self._handle([found])

    @rule(late=st.booleans())
    def foretell(self, late: bool) -> None:
        """Expected starts, worked out on a copy; they come at once, or when the plan has moved on."""
        if self.foretold and late:
            return
        found, self.foretold = self.foretold, []
        if not found:
            given = expected_starts_input(self.engine.state)
            assert given is not None
            found = list(compute_expected_starts(given).events(self.server.event_id()))
            if late:
                self.foretold = found
                return
        self._handle([*found])

    # ---- invariants ---------------------------------------------------------------------------------

    @invariant()
    def every_job_has_an_answer(self) -> None:
        published = publish_snapshot(self.engine.state)
        for job_id, record in self.engine.state.records.items():
            view = job_view(published, job_id)
            assert view is not None
            assert view.why
            for breach in record.breaches:
                assert breach.cause in MAY_BREAK
            if record.phase is Phase.WAITING:
                assert (view.planned_start is None) == (view.answer != "start_known")

    @invariant()
    def at_rest_nobody_could_start_earlier(self) -> None:
        """Whatever freed room, a repair has used it: a look at all jobs on a copy finds nothing more."""
        state = self.engine.state
        if state.plan.freed:
            return
        copy = state.plan.fork()
        copy.mark_all_for_search()
        moves, done = copy.repair(state.now)
        assert done
        assert moves.slots.tolist() == []

    @invariant()
    def what_is_told_is_of_jobs_that_wait(self) -> None:
        state = self.engine.state
        predictor = find_predictor(state)
        assert predictor is not None
        for record in state.records.values():
            known = record.id in predictor.learner
            assert known == state.settings.predicts(record.facts.queue)
            if record.slot >= 0 and (not known or record.phase in (Phase.RUNNING, Phase.BLOCKED)):
                assert state.expected[record.slot] == -1
        told = {job for kind in predictor.calibrations.values() for job in kind.estimates}
        assert told <= set(state.records)
        assert (state.expected <= state.expected_by).all()


class Ranked(Chaos):
    """The same with priorities, and a class of jobs that may break promises."""

    settings = Chaos.settings.with_changes(
        slack="400",
        priority_every=100,
        site=site_policy(
            {
                "bookings": {"most": 3, "order": "bjf"},
                "priority": {"wish": 1.0, "waiting": 20.0, "fair_share": 3.0, "short": 2.0},
                "fair_share": {},
                "classes": {"urgent": {"points": 2.0, "groups": ["staff"], "breaks_promises": True}},
                "limits": [{"what": "cpus", "who": "user", "amount": 9}],
            }
        ),
    )


class Placed(Chaos):
    """The same with nodes of different speed, some of them worth waiting for, and deadlines that go first."""

    settings = Chaos.settings.with_changes(
        slack="400",
        site=site_policy(
            {
                "bookings": {"most": 3, "order": "lff"},
                "placement": "best_gap_edf",
                "speeds": {"big": 3.0, "n3": 2.0},
                "criteria": {"wait": 1.0, "late_jobs": 2.0, "weighted_utilisation": 6.0},
                "priority": {"wish": 1.0},
            }
        ),
    )


class Strict(Ranked):
    """No slack: the first start of a job is its promise. Jobs have QOS, and there are limits of each kind."""

    settings = Ranked.settings.with_changes(
        slack="0",
        site=site_policy(
            {
                **Ranked.settings.site.plain,
                "qos": {
                    "levels": {
                        "low": {"priority": -1.0, "charge": 0.5},
                        "high": {"priority": 2.0, "users": ["ann"]},
                    },
                    "user_defaults": {"ann": "high"},
                    "default": "low",
                },
                "limits": [
                    {"what": "cpus", "who": "user", "amount": 9, "soft": 5},
                    {"qos": "low", "amount": 4},
                    {"counts": "eligible", "who": "user", "amount": 3},
                    {"counts": "submitted", "qos": "low", "amount": 6},
                    {"counts": "used", "who": "user", "what": "cpu_seconds", "period": 2000, "amount": 4000},
                    {"counts": "used", "qos": "high", "what": "walltime", "half_life": 800, "amount": 2000},
                ],
            }
        ),
    )


class Shortest(Chaos):
    """Free capacity goes to the shortest job; jobs that waited for some minutes precede these."""

    settings = Chaos.settings.with_changes(
        slack="400+0.5w", backfill="shortest", predict=True, search_patience=300
    )


class ShortestRanked(Ranked):
    """The same with priorities, and promises that may be broken."""

    settings = Ranked.settings.with_changes(backfill="shortest", search_patience=300)


def play(world: Chaos, random: Random, steps: int) -> None:
    """Let any of the rules happen, many times: more of a life than the state machine's careful steps."""
    world.begin(random.randint(0, 1 << 30))
    for _ in range(steps):
        possible = acts(world, random)
        random.choices([act for _, act in possible], [weight for weight, _ in possible])[0]()
        world.every_job_has_an_answer()
        world.at_rest_nobody_could_start_earlier()
        world.what_is_told_is_of_jobs_that_wait()


def acts(world: Chaos, random: Random) -> list[tuple[int, Callable[[], None]]]:
    choice, number, sample = random.choice, random.randint, random.sample
    job, node, queue = choice(JOBS), choice(NODES), choice(QUEUES)
    return [
        (6, lambda: world.submit(job, choice(REQUESTS), choice(WALLTIMES), queue, number(0, 1200))),
        (
            2,
            lambda: world.alter(job, choice(REQUESTS), choice(WALLTIMES), queue, choice([None, 50, 500])),
        ),
        (3, lambda: world.touch(job, choice(TOUCHES))),
        (1, lambda: world.start_by_hand(job, node, number(1, 6))),
        (2, lambda: world.node(node, choice(STATES), choice([4, 4, 2, 8]))),
        (1, lambda: world.new_node(number(0, 4), number(0, 2))),
        (1, lambda: world.queue(queue, choice([True, True, False]), choice(["", "200"]), choice(LIMITS))),
        (1, lambda: world.change_server(choice([True, True, False]), choice(["", "400"]), choice(LIMITS))),
        (1, lambda: world.slot_limit(job, choice([None, 1, 2]))),
        (1, lambda: world.reserve("r1", [node], number(-100, 2000), choice([None, number(1, 2000)]), {})),
        (1, lambda: world.reserve("r2", [node], number(-100, 2000), number(1, 2000), choice(MORE))),
        (1, lambda: world.unreserve(choice(["r1", "r2"]))),
        (
            2,
            lambda: world.book(
                choice(["b1", "b2", "b3"]),
                choice(["1:ppn=2", "2:ppn=1", "1:ppn=4"]),
                number(0, 2000),
                number(0, 2000),
                number(1, 1000),
                choice([None, None, 100]),
            ),
        ),
        (1, lambda: world.do_with_booking(choice(["b1", "b2", "b3"]), choice(BOOKING_ACTS))),
        (2, lambda: world.search(number(0, 1 << 30), choice([True, False]))),
        (2, lambda: world.foretell(choice([True, False]))),
        (1, lambda: world.pause(choice(["", "", "upgrade"]))),
        (1, lambda: world.hold_planning(sample(NODES, number(0, 3)), sample(QUEUES, number(0, 1)), True)),
        (1, lambda: world.hold_planning(NODES, QUEUES, False)),
        (1, lambda: world.change_policy(random.choices(POLICIES, k=number(1, 2)))),
        (8, lambda: world.time_passes(choice([0, 1, 7, 30, 60, 130, 300, 1000, 4000]))),
        (1, lambda: world.weather(choice(FATES), choice(ADAPTERS))),
        (1, lambda: world.out_of_order(number(0, 1 << 30))),
        (1, lambda: world.clock_set_back(number(1, 500))),
        (1, lambda: world.snapshot(choice([True, True, False]), choice([None, 10, 1000]))),
        (1, lambda: world.nonsense(number(0, 1 << 30), job, node, number(-5000, 5000))),
    ]
