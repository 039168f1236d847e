"""People known to an identity provider at a federation: who they are, there and at each cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from schedd.cli.main import main
from schedd.federation.settings import ClusterSettings, FederationSettings, FederationSettingsError, load
from tests.federation.federation_harness import HERE, JOB, FederationHarness, settings

issuer = pytest.importorskip("tests.service.issuer")
persons = pytest.importorskip("schedd.api.federation_users")

GRANTS = [
    {"groups": ["hpc"], "role": "user"},
    {"users": ["carol"], "role": "reader"},
    {"groups": ["ops"], "role": "admin"},
]


@pytest.fixture(scope="module")
def provider() -> Iterator[Any]:
    with issuer.issuing() as made:
        yield made


def settings_of(desk: FederationHarness, provider: Any, **more: Any) -> FederationSettings:
    """The desk's, where the provider answers for the realm org; tokens say whom people are in the south."""
    plain = settings(desk.path).model_dump(exclude_unset=True)
    plain["clusters"]["south"] |= {"claim": "hpc.south", "users": {"eve@org": "", "dan@org": "dan7"}}
    about = {"issuer": provider.url, "client_id": "schedd", "realm": "org", "grants": GRANTS}
    return FederationSettings.model_validate({**plain, "oidc": {**about, **more}})


@pytest.fixture
def hall(desk: FederationHarness, provider: Any) -> FederationHarness:
    """A desk that knows the provider, whose clusters answer."""
    furnish(desk, settings_of(desk, provider))
    return desk


def furnish(desk: FederationHarness, chosen: FederationSettings) -> None:
    assert chosen.oidc is not None
    desk.app.state.federation_users = persons.FederationUsers(chosen, chosen.oidc, clock=lambda: issuer.NOW)
    desk.log.close()
    desk.begin(chosen)


def token(provider: Any, name: str = "ann", south: Any = None, **claims: Any) -> str:
    said = {"preferred_username": name, "groups": ["hpc"], **claims}
    return str(provider.token(**said, **({"hpc": {"south": south}} if south is not None else {})))


def client(desk: FederationHarness, shown: str) -> TestClient:
    return TestClient(desk.app, headers={"Authorization": f"Bearer {shown}"})


def wanted(desk: FederationHarness, cluster: str) -> list[str]:
    """In whose names a cluster's plan is asked."""
    return sorted({one.user for one in desk.federation.due_questions(cluster)})


def test_a_job_is_the_users_whom_the_token_names_at_each_cluster(
    hall: FederationHarness, provider: Any
) -> None:
    row = client(hall, token(provider, south="a.smith")).post(HERE, json=JOB).json()
    assert row["owner"] == "ann@org"
    assert (wanted(hall, "north"), wanted(hall, "south")) == (["ann"], ["a.smith"])
    hall.report("north", 900)
    hall.report("south", 500)
    (action,) = hall.federation.pending_actions("south")
    assert action.body is not None
    assert action.body["user"] == "a.smith"
    assert "users" not in action.body
    # It is known after a new beginning, and the same person by the token file is the same owner.
    chosen = hall.federation.settings
    hall.log.close()
    hall.begin(chosen)
    assert hall.federation.cluster_users("ann@org") == {"north": "ann", "south": "a.smith"}
    assert hall.client("ann@org").get(f"{HERE}/{row['id']}").json()["owner"] == "ann@org"


@pytest.mark.parametrize(
    ("name", "south", "users"),
    [
        ("ann", None, {"north": "ann", "south": "ann"}),  # no claim: by the realm
        ("ann", "", {"north": "ann"}),
        ("ann", "root", {"north": "ann"}),
        ("ann", "a b", {"north": "ann"}),
        ("ann", "0", {"north": "ann"}),
        ("ann", "-u", {"north": "ann"}),
        ("ann", ["a.smith"], {"north": "ann"}),
        ("ann", 17, {"north": "ann"}),
        ("eve", "mallory", {"north": "eve"}),  # the table says that she has none there
        ("dan", "dan8", {"north": "dan", "south": "dan7"}),  # the table goes before the claim
    ],
)
def test_a_claim_that_is_no_name_makes_nobody_and_the_table_goes_first(
    hall: FederationHarness, provider: Any, name: str, south: Any, users: dict[str, str]
) -> None:
    assert client(hall, token(provider, name, south)).post(HERE, json=JOB).status_code == 201
    assert hall.federation.cluster_users(f"{name}@org") == users
    hall.report("north", 500)
    hall.report("south", 900)
    found = client(hall, token(provider, name, south)).post(
        "/v1/federation/what-if", json={"request": "nodes=1"}
    )
    why = {row["cluster"]: row["why"] for row in found.json()["clusters"]}
    assert ("has no user there" in why["south"]) == ("south" not in users)


def test_the_newest_token_counts_for_jobs_that_wait_too(hall: FederationHarness, provider: Any) -> None:
    client(hall, token(provider, south="old")).post(HERE, json=JOB)
    assert wanted(hall, "south") == ["old"]
    client(hall, token(provider, south="new")).post(HERE, json={**JOB, "key": "k2"})
    assert "new" in wanted(hall, "south")
    hall.report("north", 900)
    hall.report("south", 500)
    assert [one.body["user"] for one in hall.federation.pending_actions("south") if one.body] == [
        "new",
        "new",
    ]
    # What an admin submits in her name says nothing of who she is.
    hall.client("root").post(HERE, json={**JOB, "key": "k3", "owner": "ann@org"})
    assert hall.federation.cluster_users("ann@org")["south"] == "new"


def test_a_group_is_the_users_whom_the_token_names(hall: FederationHarness, provider: Any) -> None:
    part = {"request": "nodes=1:ppn=4,walltime=100", "script": "sleep 1"}
    ann = client(hall, token(provider, south="a.smith"))
    made = ann.post("/v1/federation/coallocations", json={"parts": [part, part]})
    assert (made.status_code, made.json()["owner"]) == (201, "ann@org")
    assert hall.federation.cluster_users("ann@org") == {"north": "ann", "south": "a.smith"}


def test_a_booking_is_the_users_whom_the_token_names(
    hall: FederationHarness, provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedd.api.federated_bookings._OUTCOME_MARGIN_S", -30)  # nobody looks after it here
    shown = token(provider, south="a.smith")
    asked = {"request": "nodes=1:ppn=4", "duration": 600, "deadline": hall.now + 9_000}
    made = client(hall, shown).put("/v1/federation/bookings/exam", json=asked)
    assert (made.status_code, made.json()["owner"]) == (202, "ann@org")
    assert hall.federation.cluster_users("ann@org") == {"north": "ann", "south": "a.smith"}


def test_what_somebody_may_is_by_grants_and_nobody_without_one_is_let_in(
    hall: FederationHarness, provider: Any
) -> None:
    job = client(hall, token(provider)).post(HERE, json=JOB).json()["id"]
    for name, groups, status in (("bob", ["hpc"], 404), ("carol", [], 200), ("olga", ["hpc", "ops"], 200)):
        found = client(hall, token(provider, name, groups=groups)).get(f"{HERE}/{job}")
        assert found.status_code == status, name
    assert client(hall, token(provider, "carol", groups=[])).delete(f"{HERE}/{job}").status_code == 403
    assert client(hall, token(provider, "olga", groups=["ops"])).delete(f"{HERE}/{job}").status_code == 200
    out = client(hall, token(provider, "ann", groups=["physics"])).get(HERE)
    assert (out.status_code, "no grant" in out.text) == (401, True)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": issuer.NOW - 60}, "expired"),
        ({"aud": "portal"}, "does not count"),
        ({"iss": "https://else.example.org"}, "does not count"),
        ({"key": issuer.NEXT}, "signature"),
        ({"preferred_username": None}, "no user's name"),
        ({"preferred_username": "ann@else"}, "a name without @"),
    ],
)
def test_a_token_that_does_not_count_is_refused_with_why(
    hall: FederationHarness, provider: Any, claims: dict[str, Any], words: str
) -> None:
    answer = client(hall, token(provider, **claims) if "key" not in claims else provider.token(**claims)).get(
        HERE
    )
    assert answer.status_code == 401
    assert words in answer.json()["detail"]


def test_without_a_realm_the_claim_says_it(desk: FederationHarness, provider: Any) -> None:
    furnish(desk, settings_of(desk, provider, realm=""))
    made = client(desk, token(provider, "ann@org")).post(HERE, json=JOB)
    assert made.json()["owner"] == "ann@org"
    for wrong in ("ann", "ann@org@org", "ann@"):
        assert client(desk, token(provider, wrong)).get(HERE).status_code == 401


def test_a_provider_that_cannot_be_asked_is_said_so_and_tokens_of_the_file_count(
    hall: FederationHarness, provider: Any
) -> None:
    provider.down = True
    try:
        furnish(hall, hall.federation.settings)  # one that has no keys yet
        answer = client(hall, token(provider)).get(HERE)
    finally:
        provider.down = False
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert hall.client("ann@org").get(HERE).status_code == 200


def test_a_federation_without_a_provider_takes_no_such_token(desk: FederationHarness, provider: Any) -> None:
    assert client(desk, token(provider)).get(HERE).status_code == 401


GOOD = """
[oidc]
issuer = "https://id.example.org/realms/hpc"
client_id = "schedd"
realm = "org"
[[oidc.grants]]
groups = ["hpc"]
role = "user"
[clusters.north]
url = "http://127.0.0.1:8080"
token_file = "/etc/schedd/north.token"
claim = "hpc.north"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD[GOOD.index("[clusters") :], "clusters.north.claim: there is no table [oidc]"),
        (GOOD.replace("https:", "http:"), "oidc.issuer: only https"),
        (GOOD.replace('client_id = "schedd"\n', ""), "oidc.client_id: Field required"),
        (GOOD.replace('groups = ["hpc"]\n', ""), "a grant names groups or users"),
        (GOOD.replace('"user"', '"operator"'), "oidc.grants.0.role"),
        (GOOD.replace('realm = "org"', 'realm = "ann@org"'), "oidc.realm"),
        (GOOD.replace("realm", "relm"), "oidc.relm: no such setting"),
    ],
)
def test_what_is_wrong_in_the_settings_is_said(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "federation.toml"
    file.write_text(text)
    with pytest.raises(FederationSettingsError) as error:
        load(file)
    assert words in str(error.value)


def test_the_check_of_the_command_reads_the_certificates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("a-token\n")
    file = tmp_path / "federation.toml"
    good = GOOD.replace("/etc/schedd/north.token", str(tmp_path / "token"))
    file.write_text(good)
    assert main(["federate", "--config", str(file), "--check"]) == 0
    file.write_text(good.replace("[[oidc", f'ca_file = "{tmp_path}/no.pem"\n[[oidc'))
    capsys.readouterr()
    assert main(["federate", "--config", str(file), "--check"]) == 2
    assert "oidc.ca_file" in capsys.readouterr().err


def test_a_claim_counts_only_where_the_cluster_names_one(tmp_path: Path) -> None:
    plain = {"url": "http://x", "token_file": str(tmp_path), "realms": ["org"]}
    assert ClusterSettings.model_validate(plain).user("ann@org", "mallory") == "ann"
    named = ClusterSettings.model_validate({**plain, "claim": "north", "realms": []})
    assert [named.user("ann@org", said) for said in ("a1", "", None)] == ["a1", "", ""]
