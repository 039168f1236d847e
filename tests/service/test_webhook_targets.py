"""Allowed webhook targets: addresses, names, changing DNS, redirects, certificates. Real sockets."""

import asyncio
import http.server
import ipaddress
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from pydantic import ValidationError

from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.notifications.webhook_secrets import Webhook
from schedd.service.notifications.webhooks import _post, _send
from schedd.service.settings.daemon import WebhookSettings
from schedd.service.settings.targets import TargetRefused, is_public, resolve_targets
from tests.service.planner_harness import planner
from tests.waits import WAIT_S

# fmt: off
INSIDE = (
    "127.0.0.1", "127.255.0.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255",
    "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1",
    "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
    "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::", "2001::1", "2001:db8::1",
)
# fmt: on
WORLD = ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]


@pytest.fixture(autouse=True)
def unset_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def listening_server(
    address: str, port: int = 0, certificate: Path | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Run a server; yield its port and the list of requested hosts and paths."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(f"{self.headers['Host']}{self.path}")
            self.send_response(307 if self.path == "/away" else 200)
            if self.path == "/away":
                self.send_header("Location", f"http://127.0.0.1:{server.server_port}/inside")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer((address, port), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()
            thread.join(WAIT_S)


def post_webhook(url: str, *allow: str) -> bool:
    """Return whether the post is done: accepted, or not to be repeated."""
    hook = Webhook(
        WebhookSettings(url=url, secret_file=Path("unused"), allow=allow), b"a-secret-for-the-tests"
    )

    async def post_hook(loop: PlanLoop) -> str:
        async with httpx2.AsyncClient(trust_env=False, follow_redirects=True) as client:
            return await _post(loop, hook, client, "alerts", {}, 0)

    with planner() as loop:
        return not asyncio.run(post_hook(loop))


@pytest.mark.parametrize("address", INSIDE)
def test_local_and_private_addresses_are_not_public(
    address: str,
) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", WORLD)
def test_other_addresses_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["localhost", "localhost.", "127.1", "0x7f000001", "2130706433", "017700000001"]
)
def test_local_host_name_is_no_target_unless_allowed(host: str) -> None:
    with listening_server("127.0.0.1") as (port, asked):
        assert not post_webhook(f"http://{host}:{port}/hook")
        assert asked == []
        assert post_webhook(f"http://{host}:{port}/hook", "127.0.0.0/8", "::1/128")
        assert asked == [f"{host.rstrip('.')}:{port}/hook"]


def test_allowed_names_and_literal_addresses_are_accepted() -> None:
    with listening_server("127.0.0.1") as (port, asked):
        assert not post_webhook(f"http://localhost:{port}/a", "elsewhere")
        assert post_webhook(f"http://LocalHost:{port}/b", "localhost")
        assert post_webhook(f"http://127.0.0.1:{port}/c")
        assert [one.partition("/")[2] for one in asked] == ["b", "c"]


def test_redirect_is_never_followed() -> None:
    with listening_server("127.0.0.1") as (port, asked):
        post_webhook(f"http://127.0.0.1:{port}/away")
        assert asked == [f"127.0.0.1:{port}/away"]


def test_request_goes_to_the_checked_address_after_dns_changes() -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    calls: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        calls.append(f"{host}:{port}")
        return next(answers)

    async def send_to_targets() -> None:
        async with httpx2.AsyncClient(trust_env=False) as client:
            targets = await resolve_targets(url, ["127.0.0.1/32"], rebinding)
            answer = await _send(targets, client, b"{}", {})
            assert answer.status_code == 200
            with pytest.raises(TargetRefused, match=r"rebind\.test is 127\.0\.0\.2"):
                await resolve_targets(url, ["127.0.0.1/32"], rebinding)

    with ExitStack() as stack:
        port, asked = stack.enter_context(listening_server("127.0.0.1"))
        _, other = stack.enter_context(listening_server("127.0.0.2", port))
        url = f"http://rebind.test:{port}/hook"
        asyncio.run(send_to_targets())
        assert (asked, other) == ([f"rebind.test:{port}/hook"], [])
        assert len(calls) == 2  # once per request: the name is not resolved again


def test_only_allowed_addresses_are_tried_in_order() -> None:
    async def several(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.3", "10.0.0.1", "127.0.0.1"]

    async def send_to_targets() -> None:
        targets = await resolve_targets(f"http://many.test:{port}/hook", ["127.0.0.0/8"], several)
        assert len(targets) == 2
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert (await _send(targets, client, b"{}", {})).is_success

    with listening_server("127.0.0.1") as (port, asked):
        asyncio.run(send_to_targets())
        assert asked == [f"many.test:{port}/hook"]


def test_certificate_is_checked_against_the_name(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /O=t -keyout key.pem"
    words += " -addext subjectAltName=DNS:hook.test -out cert.pem"
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True, cwd=tmp_path)

    async def here(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async def send_to(name: str) -> int:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        targets = await resolve_targets(f"https://{name}:{port}/hook", ["127.0.0.1/32"], here)
        async with httpx2.AsyncClient(trust_env=False, verify=trusted) as client:
            return (await _send(targets, client, b"{}", {})).status_code

    with listening_server("127.0.0.1", certificate=tmp_path) as (port, asked):
        assert asyncio.run(send_to("hook.test")) == 200
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            asyncio.run(send_to("other.test"))
        assert asked == [f"hook.test:{port}/hook"]


def test_proxied_hosts_are_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_host: str, _port: int) -> Sequence[str]:
        raise AssertionError("the proxy resolves it")

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    (target,) = asyncio.run(resolve_targets("http://hook.test/x", (), never))
    assert (target.url, target.extensions) == ("http://hook.test/x", {})


def test_url_user_and_port_are_preserved() -> None:
    async def six(_host: str, _port: int) -> Sequence[str]:
        return ["2606:4700::1111"]

    (target,) = asyncio.run(resolve_targets("https://me:pw@hook.test:8443/x?y=1", (), six))
    assert target.url == "https://me:pw@[2606:4700::1111]:8443/x?y=1"
    assert (target.headers, target.extensions) == ({"Host": "hook.test:8443"}, {"sni_hostname": "hook.test"})


@pytest.mark.parametrize("wrong", ["10.0.0.1/8", "10.0.0.0/33", "fe80::/200"])
def test_invalid_network_is_refused_in_the_settings(wrong: str) -> None:
    with pytest.raises(ValidationError, match="allow"):
        WebhookSettings(url="https://x/", secret_file=Path("x"), allow=(wrong,))
