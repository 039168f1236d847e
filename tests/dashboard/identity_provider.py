"""An identity provider as a process of its own on loopback, which insists on PKCE; it says its port first.

`oidc-provider-mock` issues codes and signed ID tokens; the verifier of PKCE, which it does not look at, is
checked here. `POST /test/rotate` gives it another key.
"""

import base64
import hashlib
import json
import os
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import flask
from oidc_provider_mock import app as new_app
from oidc_provider_mock._storage import User
from werkzeug.serving import make_server

PEOPLE: dict[str, dict[str, Any]] = {
    "1": {"preferred_username": "ann", "groups": ["hpc-users"]},
    "2": {"preferred_username": "bob", "groups": ["hpc-admins", "hpc-users"]},
    "3": {"preferred_username": "eve", "groups": ["physics"], "realm_access": {"roles": ["hpc-users"]}},
    "4": {"preferred_username": "no good/name", "groups": ["hpc-admins"]},
    "5": {"groups": "hpc-admins"},
}


def main() -> None:
    """Serve until the process is ended."""
    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
    people = [User(sub=sub, claims=dict(claims)) for sub, claims in PEOPLE.items()]
    app = new_app(user_claims=people)
    app.debug = False
    challenges: dict[str, str] = {}

    @app.before_request  # type: ignore[untyped-decorator]
    def check() -> flask.Response | None:
        if flask.request.path == "/oauth2/authorize" and flask.request.args.get("client_id") == "schedd":
            asked = flask.request.args
            if asked.get("code_challenge_method") != "S256" or len(asked.get("code_challenge", "")) != 43:
                return flask.Response("PKCE is needed", 400)
        if flask.request.path == "/oauth2/token":
            verifier = flask.request.form.get("code_verifier", "")
            digest = hashlib.sha256(verifier.encode()).digest()
            shown = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            wanted = challenges.get(flask.request.form["code"])
            if wanted is not None and wanted != shown:
                wrong = json.dumps({"error": "invalid_grant"})
                return flask.Response(wrong, 400, content_type="application/json")
        return None

    @app.after_request  # type: ignore[untyped-decorator]
    def remember(answer: flask.Response) -> flask.Response:
        if flask.request.path == "/oauth2/authorize" and "code_challenge" in flask.request.args:
            for code in parse_qs(urlsplit(answer.headers.get("Location", "")).query).get("code", []):
                challenges[code] = flask.request.args["code_challenge"]
        return answer

    @app.post("/test/rotate")  # type: ignore[untyped-decorator]
    def rotate() -> str:
        kept = flask.g.oidc_provider_mock_storage
        kept.jwk = type(kept.jwk).generate_key(is_private=True)
        return "done"

    server = make_server("127.0.0.1", 0, app, threaded=True)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
