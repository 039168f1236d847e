"""Users of an identity provider at a federation: their names at the federation and at each cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from schedd.cli.main import main
from schedd.federation.settings import FederationSettings, MemberClusterSettings, load_federation_settings
from schedd.wire.toml_files import SettingsError
from tests.federation.federation_harness import HERE, JOB, FederationHarness, settings

issuer = pytest.importorskip("tests.service.identity_provider")
persons = pytest.importorskip("schedd.federation.api.users")

GRANTS = [
    {"groups": ["hpc"], "role": "user"},
    {"users": ["carol"], "role": "reader"},
    {"groups": ["ops"], "role": "admin"},
]


@pytest.fixture(scope="module")
def provider() -> Iterator[Any]:
    with issuer.running_provider() as made:
        yield made


def provider_settings(harness: FederationHarness, provider: Any, **more: Any) -> FederationSettings:
    """Settings with a provider for the realm org; tokens name the users in the south."""
    plain = settings(harness.path).model_dump(exclude_unset=True)
    plain["clusters"]["south"] |= {"claim": "hpc.south", "users": {"eve@org": "", "dan@org": "dan7"}}
    about = {"issuer": provider.url, "client_id": "schedd", "realm": "org", "grants": GRANTS}
    return FederationSettings.model_validate({**plain, "oidc": {**about, **more}})


@pytest.fixture
def provider_harness(harness: FederationHarness, provider: Any) -> FederationHarness:
    """Harness with a provider and reachable clusters."""
    furnish(harness, provider_settings(harness, provider))
    return harness


def furnish(harness: FederationHarness, chosen: FederationSettings) -> None:
    assert chosen.oidc is not None
    harness.app.state.federation_users = persons.FederationUsers(
        chosen, chosen.oidc, clock=lambda: issuer.NOW
    )
    harness.log.close()
    harness.begin(chosen)


def token(provider: Any, name: str = "ann", south: Any = None, **claims: Any) -> str:
    said = {"preferred_username": name, "groups": ["hpc"], **claims}
    return str(provider.token(**said, **({"hpc": {"south": south}} if south is not None else {})))


def client(harness: FederationHarness, shown: str) -> TestClient:
    return TestClient(harness.app, headers={"Authorization": f"Bearer {shown}"})


def questioned_users(harness: FederationHarness, cluster: str) -> list[str]:
    """Return the user names in the questions to a cluster's plan."""
    return sorted({one.user for one in harness.federation.due_questions(cluster)})


def test_job_runs_under_user_names_from_the_token(provider_harness: FederationHarness, provider: Any) -> None:
    row = client(provider_harness, token(provider, south="a.smith")).post(HERE, json=JOB).json()
    assert row["owner"] == "ann@org"
    assert (questioned_users(provider_harness, "north"), questioned_users(provider_harness, "south")) == (
        ["ann"],
        ["a.smith"],
    )
    provider_harness.report("north", 900)
    provider_harness.report("south", 500)
    (action,) = provider_harness.federation.pending_actions("south")
    assert action.body is not None
    assert action.body["user"] == "a.smith"
    assert "users" not in action.body
    # The name survives a restart, and the token file refers to the same user.
    chosen = provider_harness.federation.settings
    provider_harness.log.close()
    provider_harness.begin(chosen)
    assert provider_harness.federation.cluster_users("ann@org") == {"north": "ann", "south": "a.smith"}
    assert provider_harness.client("ann@org").get(f"{HERE}/{row['id']}").json()["owner"] == "ann@org"


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
def test_invalid_claim_gives_no_user_and_the_table_overrides(
    provider_harness: FederationHarness, provider: Any, name: str, south: Any, users: dict[str, str]
) -> None:
    assert client(provider_harness, token(provider, name, south)).post(HERE, json=JOB).status_code == 201
    assert provider_harness.federation.cluster_users(f"{name}@org") == users
    provider_harness.report("north", 500)
    provider_harness.report("south", 900)
    found = client(provider_harness, token(provider, name, south)).post(
        "/v1/federation/what-if", json={"request": "nodes=1"}
    )
    why = {row["cluster"]: row["why"] for row in found.json()["clusters"]}
    assert ("has no user there" in why["south"]) == ("south" not in users)


def test_newest_token_applies_to_waiting_jobs(provider_harness: FederationHarness, provider: Any) -> None:
    client(provider_harness, token(provider, south="old")).post(HERE, json=JOB)
    assert questioned_users(provider_harness, "south") == ["old"]
    client(provider_harness, token(provider, south="new")).post(HERE, json={**JOB, "key": "k2"})
    assert "new" in questioned_users(provider_harness, "south")
    provider_harness.report("north", 900)
    provider_harness.report("south", 500)
    assert [one.body["user"] for one in provider_harness.federation.pending_actions("south") if one.body] == [
        "new",
        "new",
    ]
    # A submission by an admin in her name does not change her user names.
    provider_harness.client("root").post(HERE, json={**JOB, "key": "k3", "owner": "ann@org"})
    assert provider_harness.federation.cluster_users("ann@org")["south"] == "new"


def test_coallocation_runs_under_user_names_from_the_token(
    provider_harness: FederationHarness, provider: Any
) -> None:
    component = {"request": "nodes=1:ppn=4,walltime=100", "script": "sleep 1"}
    ann = client(provider_harness, token(provider, south="a.smith"))
    made = ann.post("/v1/federation/coallocations", json={"components": [component, component]})
    assert (made.status_code, made.json()["owner"]) == (201, "ann@org")
    assert provider_harness.federation.cluster_users("ann@org") == {"north": "ann", "south": "a.smith"}


def test_booking_uses_user_names_from_the_token(
    provider_harness: FederationHarness, provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "schedd.federation.api.bookings._OUTCOME_MARGIN_S", -30
    )  # no worker serves the booking here
    shown = token(provider, south="a.smith")
    asked = {"request": "nodes=1:ppn=4", "duration": 600, "deadline": provider_harness.now + 9_000}
    made = client(provider_harness, shown).put("/v1/federation/bookings/exam", json=asked)
    assert (made.status_code, made.json()["owner"]) == (202, "ann@org")
    assert provider_harness.federation.cluster_users("ann@org") == {"north": "ann", "south": "a.smith"}


def test_grants_determine_roles(provider_harness: FederationHarness, provider: Any) -> None:
    job = client(provider_harness, token(provider)).post(HERE, json=JOB).json()["id"]
    for name, groups, status in (("bob", ["hpc"], 404), ("carol", [], 200), ("olga", ["hpc", "ops"], 200)):
        found = client(provider_harness, token(provider, name, groups=groups)).get(f"{HERE}/{job}")
        assert found.status_code == status, name
    assert (
        client(provider_harness, token(provider, "carol", groups=[])).delete(f"{HERE}/{job}").status_code
        == 403
    )
    assert (
        client(provider_harness, token(provider, "olga", groups=["ops"])).delete(f"{HERE}/{job}").status_code
        == 200
    )
    out = client(provider_harness, token(provider, "ann", groups=["physics"])).get(HERE)
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
def test_invalid_token_is_refused_with_a_reason(
    provider_harness: FederationHarness, provider: Any, claims: dict[str, Any], words: str
) -> None:
    answer = client(
        provider_harness, token(provider, **claims) if "key" not in claims else provider.token(**claims)
    ).get(HERE)
    assert answer.status_code == 401
    assert words in answer.json()["detail"]


def test_claim_contains_the_realm_without_a_setting(harness: FederationHarness, provider: Any) -> None:
    furnish(harness, provider_settings(harness, provider, realm=""))
    made = client(harness, token(provider, "ann@org")).post(HERE, json=JOB)
    assert made.json()["owner"] == "ann@org"
    for wrong in ("ann", "ann@org@org", "ann@"):
        assert client(harness, token(provider, wrong)).get(HERE).status_code == 401


def test_unreachable_provider_leaves_file_tokens_valid(
    provider_harness: FederationHarness, provider: Any
) -> None:
    provider.down = True
    try:
        furnish(provider_harness, provider_harness.federation.settings)  # no keys yet
        answer = client(provider_harness, token(provider)).get(HERE)
    finally:
        provider.down = False
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert provider_harness.client("ann@org").get(HERE).status_code == 200


def test_id_tokens_need_a_provider(harness: FederationHarness, provider: Any) -> None:
    assert client(harness, token(provider)).get(HERE).status_code == 401


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
        (GOOD[GOOD.index("[clusters") :], "clusters.north.claim: needs a table [oidc]"),
        (GOOD.replace("https:", "http:"), "oidc.issuer: only https"),
        (GOOD.replace('client_id = "schedd"\n', ""), "oidc.client_id: it is missing"),
        (GOOD.replace('groups = ["hpc"]\n', ""), "a grant needs groups or users"),
        (GOOD.replace('"user"', '"operator"'), "oidc.grants.0.role"),
        (GOOD.replace('realm = "org"', 'realm = "ann@org"'), "oidc.realm"),
        (GOOD.replace("realm", "relm"), "oidc.relm: no such setting"),
    ],
)
def test_invalid_provider_settings_are_explained(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "federation.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        load_federation_settings(file)
    assert words in str(error.value)


def test_check_option_reads_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("a-token\n")
    file = tmp_path / "federation.toml"
    good = GOOD.replace("/etc/schedd/north.token", str(tmp_path / "token"))
    file.write_text(good)
    assert main(["federate", "--config", str(file), "--check"]) == 0
    file.write_text(good.replace("[[oidc", f'ca_file = "{tmp_path}/no.pem"\n[[oidc'))
    capsys.readouterr()
    assert main(["federate", "--config", str(file), "--check"]) == 2
    assert "oidc.ca_file" in capsys.readouterr().err


def test_claim_applies_only_to_clusters_with_a_claim_setting(tmp_path: Path) -> None:
    plain = {"url": "http://x", "token_file": str(tmp_path), "realms": ["org"]}
    assert MemberClusterSettings.model_validate(plain).user("ann@org", "mallory") == "ann"
    named = MemberClusterSettings.model_validate({**plain, "claim": "north", "realms": []})
    assert [named.user("ann@org", said) for said in ("a1", "", None)] == ["a1", "", ""]
