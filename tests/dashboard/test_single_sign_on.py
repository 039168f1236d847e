"""Logging in at an identity provider, which runs as a process of its own, and its tokens at the API."""

import asyncio
import base64
import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from schedd.api.app import create_app
from schedd.api.settings_resources import load_resources
from schedd.dashboard import add_dashboard
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.access.identity import IdentityError
from schedd.service.access.tokens import Tokens
from schedd.service.clusters import Clusters
from schedd.service.settings.auth import OidcSettings
from schedd.service.settings.file import read_settings_file
from schedd.service.warmup import warm_up
from schedd.wire.toml_files import SettingsError
from tests.conftest import ROOT
from tests.dashboard.conftest import DashboardSite, UserWindow
from tests.service.planner_harness import StillClock, job, node
from tests.waits import WAIT_S

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:oidc_provider_mock")
pytest.importorskip("oidc_provider_mock")
oidc = pytest.importorskip("schedd.service.access.oidc")

BACK = "http://127.0.0.1:8080/dashboard/oidc/callback"
GRANTS: tuple[dict[str, Any], ...] = (
    {"groups": ["hpc-users"], "role": "user"},
    {"groups": ["hpc-admins"], "role": "operator", "clusters": ["main"]},
)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.dashboard.identity_provider"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        yield f"http://127.0.0.1:{port}"
        process.kill()


def settings(issuer: str, **other: Any) -> Any:
    about = {"issuer": issuer, "client_id": "schedd", "redirect_url": BACK, "grants": GRANTS}
    return OidcSettings.model_validate({**about, **other})


def provider(issuer: str, **other: Any) -> Any:
    return oidc.OidcProvider(settings(issuer, **other), "a secret: with signs")


@pytest.fixture(scope="module")
def shared_app() -> Iterator[FastAPI]:
    warm_up()
    clusters = Clusters({"main": EngineSettings(), "other": EngineSettings()}, StillClock())
    clusters.start(warm=False)
    for loop in clusters:
        loop.submit((node("n1"), job("1.server", user="ann"), job("2.server", user="bob"))).result(WAIT_S)
    app = create_app(clusters, Callers(Tokens(())))
    add_dashboard(app)
    yield app
    clusters.stop()


@pytest.fixture
def app(shared_app: FastAPI, issuer: str) -> FastAPI:
    shared_app.state.callers = Callers(Tokens(()), oidc=provider(issuer))
    return shared_app


def browser(app: FastAPI) -> TestClient:
    return TestClient(
        app, base_url="http://127.0.0.1:8080", follow_redirects=False, headers={"Accept": "text/html"}
    )


def authorise_as(place: str, subject: str) -> dict[str, str]:
    """Log in at the provider as ``subject``; return the parameters of its redirect."""
    answer = httpx2.post(place, data={"sub": subject}, follow_redirects=False)
    assert answer.status_code == 302, answer.text
    back = urlsplit(answer.headers["location"])
    assert f"{back.scheme}://{back.netloc}{back.path}" == BACK
    return {name: values[0] for name, values in parse_qs(back.query).items()}


def log_in(client: TestClient, subject: str, following: str = "") -> Any:
    left = client.get("/dashboard/oidc/login", params={"next": following} if following else None)
    assert left.status_code == 303
    return client.get("/dashboard/oidc/callback", params=authorise_as(left.headers["location"], subject))


def id_token(issuer: str, subject: str, client: str = "schedd", nonce: str = "") -> str:
    """Get an ID token as a program on a user's machine does."""
    verifier = "v" * 43
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": BACK,
        "scope": "openid profile",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "nonce": nonce or f"n{time.monotonic_ns()}",
    }
    code = authorise_as(f"{issuer}/oauth2/authorize?{urlencode(asked)}", subject)["code"]
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": BACK,
        "client_id": client,
        "code_verifier": verifier,
    }
    answer = httpx2.post(f"{issuer}/oauth2/token", data=form, auth=(client, "secret"))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id_token"])


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_login_returns_from_the_provider_with_granted_roles(app: FastAPI) -> None:
    client = browser(app)
    assert "Log in with your account" in client.get("/dashboard/login").text
    left = client.get("/dashboard/oidc/login?next=/main/queue")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(left.headers["location"]).query).items()}
    assert asked["code_challenge_method"] == "S256"
    assert (asked["response_type"], asked["scope"]) == ("code", "openid profile")
    assert all(len(asked[name]) >= 43 for name in ("state", "nonce", "code_challenge"))
    assert "SameSite=lax" in left.headers["set-cookie"]
    back = client.get("/dashboard/oidc/callback", params=authorise_as(left.headers["location"], "2"))
    assert back.status_code == 200
    assert 'content="0; url=/dashboard/main/queue"' in back.text
    assert "SameSite=strict" in back.headers["set-cookie"]
    assert client.get("/dashboard/main/admin").status_code == 200  # bob is operator there
    assert client.get("/dashboard/other/admin").status_code == 403  # and a user elsewhere
    ann = browser(app)
    assert log_in(ann, "1").status_code == 200
    assert ann.get("/dashboard/main/queue").status_code == 200
    assert ann.get("/dashboard/main/admin").status_code == 403


def test_logins_without_grant_or_valid_name_are_refused(app: FastAPI) -> None:
    for subject, words in (("3", "eve has no role here"), ("4", "does not count"), ("5", "does not count")):
        client = browser(app)
        answer = log_in(client, subject)
        assert answer.status_code == 403
        assert words in answer.text
        assert client.get("/dashboard/main/queue").status_code == 303  # to the login


def test_without_grants_every_login_is_refused(app: FastAPI, issuer: str) -> None:
    app.state.callers.oidc = provider(issuer, grants=())
    for subject in ("1", "2"):
        assert log_in(browser(app), subject).status_code == 403
    answer = browser(app).get("/v1/clusters", headers=bearing(id_token(issuer, "2")))
    assert answer.status_code == 401


def test_a_login_is_valid_once_and_only_in_its_browser(app: FastAPI) -> None:
    client, other = browser(app), browser(app)
    left = client.get("/dashboard/oidc/login")
    back = authorise_as(left.headers["location"], "2")
    foreign = other.get("/dashboard/oidc/callback", params=back)
    assert (foreign.status_code, "did not begin here" in foreign.text) == (403, True)
    for wrong in ({**back, "state": "x" * 43}, {"code": back["code"]}, {}):
        assert client.get("/dashboard/oidc/callback", params=wrong).status_code in (403, 429)
    app.state.callers = Callers(Tokens(()), oidc=app.state.callers.oidc)  # forget how often it was refused
    assert client.get("/dashboard/oidc/callback", params=back).status_code == 200
    again = client.get("/dashboard/oidc/callback", params=back)
    assert again.status_code == 403
    refused = client.get("/dashboard/oidc/login")
    state = parse_qs(urlsplit(refused.headers["location"]).query)["state"][0]
    said = client.get("/dashboard/oidc/callback", params={"state": state, "error": "access_denied"})
    assert (said.status_code, "access_denied" in said.text) == (403, True)


def test_an_authorisation_code_from_another_login_is_refused(app: FastAPI) -> None:
    """An attacker's code in another login is refused by PKCE and by the nonce."""
    client, attacker = browser(app), browser(app)
    theirs = authorise_as(attacker.get("/dashboard/oidc/login").headers["location"], "2")
    own = authorise_as(client.get("/dashboard/oidc/login").headers["location"], "1")
    answer = client.get("/dashboard/oidc/callback", params={"state": own["state"], "code": theirs["code"]})
    assert answer.status_code == 403
    assert "schedd_session" not in client.cookies


def test_the_nonce_is_checked_without_pkce(issuer: str) -> None:
    asked = provider(issuer)
    token = id_token(issuer, "2", nonce="of-another-login")
    with pytest.raises(IdentityError, match="another login"):
        asyncio.run(asked._identity(token, "of-this-login"))
    assert asyncio.run(asked._identity(token, "of-another-login")).name == "bob"


def test_an_id_token_authenticates_api_requests(app: FastAPI, issuer: str) -> None:
    client = browser(app)
    token = id_token(issuer, "2")
    assert [one["name"] for one in client.get("/v1/clusters", headers=bearing(token)).json()["clusters"]] == [
        "main",
        "other",
    ]
    assert client.post("/v1/clusters/main/resume", headers=bearing(token)).status_code == 200
    assert client.post("/v1/clusters/other/resume", headers=bearing(token)).status_code == 403
    assert client.get("/v1/clusters/main/jobs/1", headers=bearing(id_token(issuer, "1"))).status_code == 200
    eve = client.get("/v1/clusters", headers=bearing(id_token(issuer, "3")))
    assert (eve.status_code, "eve is known, but has no grant here" in eve.text) == (401, True)


def encoded(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_invalid_tokens_are_refused(app: FastAPI, issuer: str) -> None:
    client = browser(app)
    good = id_token(issuer, "2")
    head, body, signature = good.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = encoded({**claims, "preferred_username": "ann", "groups": ["hpc-admins"]})
    wrong = {
        "another program's": id_token(issuer, "2", client="portal"),
        "another body": f"{head}.{forged}.{signature}",
        "no signature": f"{encoded({'alg': 'none'})}.{body}.",
        "a symmetric one": f"{encoded({'alg': 'HS256'})}.{body}.{signature}",
        "nonsense": "a.b.c",
    }
    app.state.callers.limits = app.state.callers.limits.model_copy(update={"refused_rate": 0})
    for what, token in wrong.items():
        answer = client.get("/v1/clusters", headers=bearing(token))
        assert answer.status_code == 401, what
        assert token not in answer.text
    assert client.get("/v1/clusters", headers=bearing(good)).status_code == 200


def test_expired_tokens_and_foreign_issuers_are_refused(issuer: str) -> None:
    token = id_token(issuer, "2")
    late = oidc.OidcProvider(settings(issuer), clock=lambda: time.time() + 3 * 3600)
    with pytest.raises(IdentityError, match="expired"):
        asyncio.run(late.identity(token))
    assert late.cached_identity(token) is None
    # The same provider under another of its names: the keys are right, the issuer is not.
    other = oidc.OidcProvider(settings(issuer.replace("127.0.0.1", "localhost")))
    with pytest.raises(IdentityError, match="iss"):
        asyncio.run(other.identity(token))


def test_issuer_with_another_name_is_refused(issuer: str) -> None:
    with pytest.raises(IdentityError, match="says that it is") as error:
        asyncio.run(oidc.OidcProvider(settings(f"{issuer}/")).identity("a.b.c"))
    assert error.value.ours


def test_an_unreachable_provider_is_reported_and_retried(app: FastAPI) -> None:
    app.state.callers.oidc = gone = oidc.OidcProvider(settings("http://127.0.0.1:9"))
    client = browser(app)
    answer = client.get("/dashboard/oidc/login")
    assert (answer.status_code, "does not answer" in answer.text) == (503, True)
    asked = client.get("/v1/clusters", headers=bearing("a.b.c"))
    assert (asked.status_code, asked.headers["retry-after"]) == (503, "10")
    assert gone._failed is not None


def test_new_provider_keys_are_fetched(issuer: str) -> None:
    provider = oidc.OidcProvider(settings(issuer))

    async def walk() -> None:
        await provider.identity(id_token(issuer, "2"))
        httpx2.post(f"{issuer}/test/rotate")
        token = id_token(issuer, "2")
        with pytest.raises(IdentityError, match="signature"):
            await provider.identity(token)  # the keys were looked at a moment ago
        about = provider._metadata
        provider._metadata = oidc._ProviderMetadata(about.authorize, about.token, about.keys, about.then - 61)
        assert (await provider.identity(token)).name == "bob"

    asyncio.run(walk())


def test_a_session_ends_with_its_grant_and_by_timeout(app: FastAPI, issuer: str) -> None:
    client = browser(app)
    assert log_in(client, "1").status_code == 200
    assert client.get("/dashboard/main/queue").status_code == 200
    app.state.callers.oidc = provider(issuer, grants=GRANTS[1:])
    assert client.get("/dashboard/main/queue").status_code == 303
    assert log_in(client, "2").status_code == 200
    app.state.callers.oidc = None
    assert client.get("/dashboard/main/queue").status_code == 303
    assert client.get("/dashboard/oidc/login").status_code == 404


def test_groups_can_be_nested_in_another_claim(app: FastAPI, issuer: str) -> None:
    app.state.callers.oidc = provider(issuer, groups_claim="realm_access.roles")
    assert log_in(browser(app), "3").status_code == 200
    assert log_in(browser(app), "1").status_code == 403


def test_in_a_browser_a_login_from_another_site_leads_to_the_page(
    open_window: Callable[..., UserWindow], site: DashboardSite, issuer: str
) -> None:
    about = settings(
        issuer.replace("127.0.0.1", "localhost"), redirect_url=f"{site.url}/dashboard/oidc/callback"
    )
    site.app.state.callers.oidc = oidc.OidcProvider(about, "secret")
    window = open_window()
    window.context.route("https://**", lambda route: route.abort())  # the provider's page asks for styles
    page = window.open_page("queue")
    page.get_by_role("link", name="Log in with your account").click()
    page.get_by_role("button", name="2", exact=True).click()
    expect(page).to_have_url(re.compile(r"/dashboard/main/queue$"))
    expect(page.locator("header")).to_contain_text("bob")
    window.wrong.clear()  # what the provider's page did
    page.reload()
    expect(page.locator("header")).to_contain_text("bob")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('issuer = "http://id.example.org"', "only https"),
        ('redirect_url = "https://schedd.example.org/elsewhere"', "redirect_url"),
        ('scopes = ["profile"]', '"openid" must be among'),
        ('client_secret_file = "/nonexistent"', "cannot read the client's secret"),
        ('ca_file = "/nonexistent"', "ca_file"),
        ('[[auth.oidc.grants]]\nrole = "user"', "names groups or users"),
        ('[[auth.oidc.grants]]\ngroups = ["g"]\nrole = "proxy"', "role"),
        ('[[auth.oidc.grants]]\ngroups = ["g"]\nrole = "user"\nclusters = ["nain"]', "no cluster 'nain'"),
    ],
)
def test_invalid_provider_settings_are_refused(tmp_path: Path, line: str, said: str) -> None:
    text = {
        "issuer": '"https://id.example.org"',
        "client_id": '"schedd"',
        "redirect_url": '"https://schedd.example.org/dashboard/oidc/callback"',
    }
    name = line.partition(" = ")[0]
    lines = [f"{key} = {value}" for key, value in text.items() if key != name]
    path = tmp_path / "schedd.toml"
    path.write_text("[auth.oidc]\n" + "\n".join([*lines, line]) + "\n")
    with pytest.raises(SettingsError, match=re.escape(said)):
        load_resources(read_settings_file(path))


def test_readable_secret_is_refused(tmp_path: Path, issuer: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789")
    secret.chmod(0o640)
    with pytest.raises(SettingsError, match="chmod 0600"):
        oidc.create_oidc_provider(settings(issuer, client_secret_file=secret))
    secret.chmod(0o600)
    oidc.create_oidc_provider(settings(issuer, client_secret_file=secret))
