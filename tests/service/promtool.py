"""Where this machine's promtool is. Run as a script: installs it where that is possible, else says how."""

import os
import shutil
import subprocess
import sys

__all__ = ["HOW", "promtool"]

HOW = """The alarms of docs/trial are checked with promtool, and this machine has none. Install it:
  Debian, Ubuntu:  apt install prometheus
  elsewhere:       it is in the archives of prometheus.io"""


def promtool() -> str | None:
    """Its path; None where there is none."""
    return shutil.which("promtool")


def main() -> int:
    """0 always: the tests that need it say so."""
    if promtool() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("No promtool here: apt-get installs it.", flush=True)
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-qq", "--no-install-recommends", "prometheus"]):
            subprocess.run(["apt-get", *command], env=env, stdout=subprocess.DEVNULL, check=False)
    if promtool() is None:
        print(HOW, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
