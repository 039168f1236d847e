"""A small portal: the jobs of a user on all clusters, next starts first.

Run: SCHEDD_URL=http://127.0.0.1:8080 SCHEDD_TOKEN=... python portal.py 8090
"""

import html
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from schedd.client import Client, ClientError


def jobs_page(client: Client) -> str:
    """Return the page of the caller's jobs."""
    me = client.me()
    jobs = sorted(
        client.my_jobs(moves=3),
        key=lambda job: (job.state == "running", job.expected_start or job.displayed_start or float("inf")),
    )
    rows = "".join(
        f"<tr><td>{html.escape(job.cluster)}<td>{html.escape(job.id)}"
        f"<td>{html.escape(job.headline or job.why)}"
        f"<td>{'; '.join(html.escape(move.words) for move in job.moves)}"
        for job in jobs
    )
    return f"<!doctype html><title>Jobs</title><h1>Jobs of {html.escape(me.name)}</h1><table>{rows}</table>"


class Portal(BaseHTTPRequestHandler):
    """Answers each request with the page."""

    def do_GET(self) -> None:
        """Ask the daemon, and send the page."""
        try:
            with Client.from_environment() as client:
                status, page = 200, jobs_page(client)
        except ClientError as error:
            status, page = 502, html.escape(str(error))
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(page.encode())


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Portal).serve_forever()
