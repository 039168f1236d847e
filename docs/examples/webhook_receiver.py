"""Receive and print schedd's webhooks: webhook_receiver.py SECRET_FILE PORT."""

import hashlib
import hmac
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

SECRET = Path(sys.argv[1]).read_bytes().strip()
OLD_S = 300


def is_ours(signature: str, body: bytes) -> bool:
    """Return whether the body was signed with our secret a short time ago."""
    said = dict(part.partition("=")[::2] for part in signature.split(","))
    moment = said.get("t", "")
    right = hmac.new(SECRET, moment.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(said.get("v1", ""), right) and abs(time.time() - int(moment)) < OLD_S


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 to correctly signed requests, otherwise 403."""

    def do_POST(self) -> None:
        """A request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        ours = is_ours(self.headers.get("Schedd-Signature", ""), body)
        self.send_response(204 if ours else 403)
        self.end_headers()
        told = json.loads(body) if ours else {}
        for move in told.get("moves", ()):
            print(f"{move['job']}: {move['before']} -> {move['after']}: {move['words']}", flush=True)
        for what in ("opened", "closed"):
            for alert in told.get(what, ()):
                print(f"{told['cluster']}: {what}: {alert['text']}", flush=True)


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", int(sys.argv[2])), Receiver)
    print(f"listening on port {server.server_port}", flush=True)
    server.serve_forever()
