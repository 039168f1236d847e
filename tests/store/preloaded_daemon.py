"""Daemons in processes of their own, with a library that is loaded before all others."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from tests.conftest import ROOT
from tests.store.daemon_processes import DaemonProcess
from tests.waits import WAIT_S

__all__ = ["PreloadedDaemon", "compile_library"]

_PROGRAM = "import sys; from schedd.cli.main import main; sys.exit(main())"


class PreloadedDaemon(DaemonProcess):
    """Starts more slowly than with the launcher, because nothing is imported yet."""

    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start a process with these additional environment variables."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, "serve", "--config", str(self.config)],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.pid = self._process.pid
        return self

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill the process and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(WAIT_S)
        self._process, self.pid = None, 0
        self.hang_up()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None


def compile_library(source: str, folder: Path) -> Path:
    """Compile a shared library; skip the test without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: the disk cannot be made slow")
    made, text = folder / "preloaded.so", folder / "preloaded.c"
    text.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, text, "-ldl"], check=True)
    return made
