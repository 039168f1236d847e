"""Limits of queues, of the server and of the site, at every moment of the plan."""

import pytest

from tests.server_adapter.bridge.policy.bench import HOUR, Bench

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("queue", "users", "starts"),
    [
        ("one", ("lea", "leo"), [0, 100]),
        ("each", ("lea", "lea", "leo"), [0, 0, 100]),
        ("group", ("lea", "lea"), [0, 100]),
        ("named", ("xena", "xena", "lea", "lea"), [0, 0, 0, 100]),
        ("cpus", ("lea", "leo"), [0, 100]),
        ("users", ("lea", "lea", "leo"), [0, 0, 100]),
    ],
)
async def test_queue_limits_hold_in_the_plan(
    bench: Bench, queue: str, users: tuple[str, ...], starts: list[int]
) -> None:
    jobs = [bench.submit(user, "1:ppn=3", queue=queue) for user in users]
    await bench.start(*jobs, at=starts)


@pytest.mark.parametrize(("groups", "starts"), [(("red", "red"), [0, 100]), (("red", "blue"), [0, 0])])
async def test_group_limits_count_all_their_users(
    bench: Bench, groups: tuple[str, ...], starts: list[int]
) -> None:
    users = ("lea", "leo")
    jobs = [
        bench.submit(user, queue="group", extra={"egroup": group})
        for user, group in zip(users, groups, strict=True)
    ]
    await bench.start(*jobs, at=starts)


@pytest.mark.parametrize(("user", "nodes"), [("cora", "1:ppn=4"), ("nora", "2:ppn=1"), ("walt", "1:ppn=1")])
async def test_site_limits_hold_in_the_plan(bench: Bench, user: str, nodes: str) -> None:
    jobs = [bench.submit(user, nodes) for _ in range(2)]
    await bench.start(*jobs, at=[0, 100])


@pytest.mark.parametrize(("account", "starts"), [("geo", [0, 100, 200, 300]), ("bio", [0, 0, 0, 100])])
async def test_account_limits_hold_in_the_plan_for_all_their_users(
    bench: Bench, account: str, starts: list[int]
) -> None:
    jobs = [bench.submit(user, "1:ppn=3") for user in ("lea", "leo", "lea", "leo")]
    await bench.start(*jobs, at=[0] * 4)
    for job in jobs:
        bench.set_attribute(job, "Account_Name", account)
    await bench.start(*jobs, at=starts)


async def test_a_quota_holds_in_its_window_alone(bench: Bench) -> None:
    before = [bench.submit("quentin", walltime=HOUR // 2) for _ in range(2)]
    await bench.start(*before, at=[0, 0])
    within = [bench.submit("quentin", not_before=bench.begin + 2 * HOUR) for _ in range(2)]
    await bench.start(*within, at=[2 * HOUR, 2 * HOUR + 100])


async def test_changed_server_limits_and_defaults_are_followed(bench: Bench) -> None:
    cluster = bench.server.cluster
    job = bench.server.submit("dina", resources={"nodes": "1:ppn=1"}, queue="slow")
    assert (await bench.planned(job))["walltime"] == 300
    brief = bench.server.submit("dina", resources={"nodes": "1:ppn=1"}, queue="brief")
    assert (await bench.planned(brief))["walltime"] == 120  # a queue's default goes before the server's
    jobs = [bench.submit("dina", "1:ppn=3", queue="one") for _ in range(2)]
    await bench.start(*jobs, at=[0, 100])
    cluster.queues["one"].attributes["max_running"] = "2"
    await bench.start(*jobs, at=[0, 0])
    cluster.queues["one"].attributes["max_running"] = "1"
    await bench.start(*jobs, at=[0, 100])
    cluster.attributes["resources_available.fluent"] = "1"
    licensed = [bench.submit("dina", resources={"gres": "fluent:1"}) for _ in range(2)]
    await bench.start(*licensed, at=[0, 100])
    cluster.attributes["resources_available.fluent"] = "2"
    await bench.start(*licensed, at=[0, 0])
