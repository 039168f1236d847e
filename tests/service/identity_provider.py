"""An identity provider on loopback with configurable answers; it signs tokens."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwk as joserfc_jwk
from joserfc import jwt as joserfc_jwt

from schedd.service.access import oidc
from schedd.service.settings.auth import OidcSettings
from tests.waits import WAIT_S

__all__ = ["NAMELESS", "NEXT", "NOW", "SIGNS", "FakeIdentityProvider", "running_provider"]

NOW = 1_800_000_000
SIGNS = joserfc_jwk.ECKey.generate_key("P-256", {"kid": "one"})
NEXT = joserfc_jwk.ECKey.generate_key("P-256", {"kid": "two"})
NAMELESS = joserfc_jwk.ECKey.generate_key("P-256")


class FakeIdentityProvider:
    """``keys`` are published; requests wait for ``silent`` if it is set; ``down`` answers 503."""

    def __init__(self) -> None:
        self.keys: list[Any] = [SIGNS.as_dict(private=False)]
        self.down = False
        self.silent: threading.Event | None = None
        self.asked = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                if provider.silent is not None:
                    provider.silent.wait(WAIT_S)
                url = provider.url
                about = {"issuer": url, "authorization_endpoint": url, "token_endpoint": url}
                about["jwks_uri"] = f"{url}/keys"
                body = json.dumps({"keys": provider.keys} if self.path == "/keys" else about).encode()
                self.send_response(503 if provider.down else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def make_client(self, now: float = NOW, **settings: Any) -> Any:
        """Return schedd's client of this provider, with the clock at ``now``."""
        about = {
            "issuer": self.url,
            "client_id": "schedd",
            "redirect_url": "http://127.0.0.1:8080/dashboard/oidc/callback",
            "grants": ({"groups": ["/hpc/admins"], "role": "admin"},),
        }
        made = OidcSettings.model_validate({**about, **settings})
        return oidc.OidcProvider(made, clock=lambda: now)

    def token(self, key: Any = SIGNS, **claims: Any) -> str:
        """Return a token signed by ``key``, without the claims that are None."""
        about = {"iss": self.url, "aud": "schedd", "sub": "1", "iat": NOW, "exp": NOW + 300}
        about |= {"preferred_username": "ann"} | claims
        head = {"alg": "ES256"} | ({"kid": key.kid} if key.kid else {})
        return str(joserfc_jwt.encode(head, {k: v for k, v in about.items() if v is not None}, key))


@contextmanager
def running_provider() -> Iterator[FakeIdentityProvider]:
    """Run a provider until the end of the block."""
    made = FakeIdentityProvider()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()
