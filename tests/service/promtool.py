"""Path of promtool. Run as a script, it installs promtool if possible, else prints how to."""

import os
import shutil
import subprocess
import sys

__all__ = ["HOW", "find_promtool"]

HOW = """The alarms of docs/trial are checked with promtool, and this machine has none. Install it:
  Debian, Ubuntu:  apt install prometheus
  elsewhere:       it is in the archives of prometheus.io"""


def find_promtool() -> str | None:
    """Return the path of promtool, or None."""
    return shutil.which("promtool")


def main() -> int:
    """Return 0 in any case: the tests that need promtool are skipped without it."""
    if find_promtool() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("No promtool here: apt-get installs it.", flush=True)
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-qq", "--no-install-recommends", "prometheus"]):
            subprocess.run(["apt-get", *command], env=env, stdout=subprocess.DEVNULL, check=False)
    if find_promtool() is None:
        print(HOW, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
