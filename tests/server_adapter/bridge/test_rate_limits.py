"""How fast starts and writes may follow each other."""

import pytest

from server_adapter.bridge.rate_limits import AdaptiveRateLimiter, NodeRateLimiter, RateLimiter


@pytest.mark.parametrize(
    ("answers_in", "per_second"), [(0.0001, 200), (0.001, 200), (0.01, 80), (0.1, 5), (1.0, 0.5)]
)
def test_the_write_rate_follows_the_servers_response_time(answers_in: float, per_second: float) -> None:
    pace, now, count = AdaptiveRateLimiter(200), 0.0, 0
    while now < 100:
        now += pace.wait(now)
        pace.record(now, now + answers_in)
        now += answers_in
        count += 1
    assert count / now == pytest.approx(per_second, rel=0.06)


def test_writes_resume_within_half_a_minute_after_a_slow_response() -> None:
    pace = AdaptiveRateLimiter(200)
    pace.record(0.0, 25.0)
    assert 0 < pace.wait(25.0) <= 30
    pace.record(55.0, 55.001)
    assert pace.wait(55.001) < 0.01


def test_a_rate_lets_a_burst_go_and_then_keeps_its_mean() -> None:
    rate = RateLimiter(10, burst=5)
    moments = []
    now = 0.0
    for _ in range(25):
        now += rate.wait(now)
        rate.consume(now)
        moments.append(now)
    assert moments[4] == 0.0
    assert moments[-1] == pytest.approx(2.0)


def test_each_node_has_its_own_rate() -> None:
    rates = NodeRateLimiter(1)
    rates.consume(["a"], 0.0)
    assert rates.wait(["a"], 0.0) == 1.0
    assert rates.wait(["b"], 0.0) == 0.0
    assert rates.wait(["b", "a"], 0.5) == 0.5
