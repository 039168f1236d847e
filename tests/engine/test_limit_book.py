"""What the book of limits remembers of the latest job, and that changes make it forget."""

from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.pools import LimitBook, make_claim
from schedd.model import Chunk, Request
from schedd.plan.plan import Plan
from schedd.policy.limits import Limit
from schedd.wire import JobFacts, ResourceFacts, ResourceTypes

ASKED = ParsedRequest(Request((Chunk(cpus=2),)), 100, False)


def job(owner: str = "ann", licences: str = "3") -> JobFacts:
    return JobFacts(id="1", owner=owner, queue="batch", submitted=0, resources={"tokens": licences})


def make_book(*limits: Limit) -> LimitBook:
    book = LimitBook()
    book.set_sources((limits,))
    return book


def test_a_claim_follows_the_job_the_shared_resources_and_the_types_of_resources() -> None:
    book, facts = make_book(Limit(amount=9, what="tokens")), job(licences="3gb")

    def fresh() -> bool:
        return book.claim(facts, ASKED) == make_claim(facts, ASKED, book.shared, book.types)

    assert fresh()
    assert book.claim(facts, ASKED) is book.claim(facts, ASKED)
    assert "tokens" not in book.claim(facts, ASKED).amounts  # no number, as long as it has no type
    book.types = ResourceTypes({"tokens": ResourceFacts(type="size")})
    assert fresh()
    assert book.claim(facts, ASKED).amounts["tokens"] == 3 << 20
    book.set_sources(())
    assert fresh()
    assert "tokens" not in book.claim(facts, ASKED).amounts
    facts = job("bob")
    assert fresh()


def test_pools_follow_changed_limits_though_equal_limits_are_one_object() -> None:
    book, plan = (
        make_book(Limit(amount=8, what="cpus"), Limit(amount=4, what="cpus", who="user")),
        Plan([], 0),
    )

    def limits(owner: str) -> list[tuple[str, Limit]]:
        return [(pool, book.pools[pool]) for pool in book.needs(plan, job(owner), ASKED, 0)]

    ann, bob = limits("ann"), limits("bob")
    assert [limit.amount for _, limit in (*ann, *bob)] == [8, 4, 8, 4]
    assert ann[0][1] is bob[0][1]
    book.set_sources(((Limit(amount=6, what="cpus"), Limit(amount=4, what="cpus", who="user")),))
    assert [limit.amount for _, limit in limits("ann")] == [6, 4]
    assert book.lowered == {ann[0][0]}
    assert [limit.amount for _, limit in limits("bob")] == [6, 4]
