"""Path of Chromium. Run as a script, it installs one if possible, else prints how to."""

import os
import shutil
import subprocess
import sys

from research.benchmarks.browser import chromium

__all__ = ["HOW", "chromium"]

HOW = """The dashboard is tested in a Chromium, and this machine has none. Install one:
  Debian:        apt install chromium-headless-shell (or chromium)
  Fedora, RHEL:  dnf install chromium (RHEL: from EPEL)
  openSUSE:      zypper install chromium
or name another browser of its kind: SCHEDD_CHROMIUM=/path/to/it"""


def main() -> int:
    """0 when there is a browser, or one could be installed."""
    if chromium() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("No Chromium here: apt-get installs one.", flush=True)
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["install", "-qq", "--no-install-recommends"]
        for command in (["update", "-qq"], [*install, "chromium-headless-shell"], [*install, "chromium"]):
            if chromium() is None:
                subprocess.run(["apt-get", *command], env=env, stdout=subprocess.DEVNULL, check=False)
    if chromium() is None:
        print(HOW, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
