"""Gates that are open to a job are those whose access lists admit it."""

import random

from schedd.engine.facts.job_requests import open_gates
from schedd.policy.access import Access
from schedd.wire import JobFacts


def test_open_gates_are_those_whose_lists_admit_the_job() -> None:
    rng = random.Random(7)

    def names(kind: str) -> frozenset[str]:
        return frozenset(f"{kind}{n}" for n in range(3) if rng.random() < 0.2)

    opened = 0
    for _ in range(300):
        gates = {
            f"gate {n}": Access(names("u"), names("g"), names("a"), names("q"), rng.choice([0, 0, 60, 600]))
            for n in range(4)
        }
        walltime = rng.choice(["", "30", "0:01:00", "500", "1:00:00", "nonsense"])
        facts = JobFacts(
            id="1",
            owner=f"u{rng.randrange(3)}@login",
            group=f"g{rng.randrange(3)}",
            account=f"a{rng.randrange(3)}",
            queue=f"q{rng.randrange(3)}",
            submitted=0,
            resources={"walltime": walltime} if walltime else {},
        )
        seconds = {"30": 30, "0:01:00": 60, "500": 500, "1:00:00": 3600}.get(walltime, 0)
        about = (facts.owner, facts.group, facts.account, facts.queue, seconds)
        wanted = {name for name, access in gates.items() if access.admits(*about)}
        assert open_gates(gates, facts) == wanted
        opened += len(wanted)
    assert 100 < opened < 1_100
