"""Libraries loaded by a ready daemon: jobs wait for its start after a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

UNNEEDED = ("alembic", "bokeh", "httpx2", "jinja2", "mako", "matplotlib", "pymoo", "scipy.linalg")
"""For pages, migrations, webhooks, sets of alternatives and commands."""

_SCRIPT = """
import os, signal, sys, threading, urllib.request
from schedd.cli.main import main

def look() -> None:
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
                break
        except OSError:
            threading.Event().wait(0.05)
    print(*sorted(set(sys.argv[2].split(",")) & set(sys.modules)))
    os.kill(os.getpid(), signal.SIGTERM)

from schedd.api import listening_sockets
opened = listening_sockets.listen_tcp

def listen(*args):
    global port
    found = opened(*args)
    port = found.getsockname()[1]
    threading.Thread(target=look).start()
    return found

listening_sockets.listen_tcp = listen
sys.exit(main(["serve", "--config", sys.argv[1], "--port", "0"]))
"""


def libraries_of_ready_daemon(config: Path, first: str = "", kernels: str = "") -> str:
    """Return those loaded by a daemon with these settings at its first ``GET /readyz``.

    ``first`` is code that runs before everything else, ``kernels`` a folder of compiled kernels.
    """
    command = [sys.executable, "-c", first + _SCRIPT, str(config), ",".join(UNNEEDED)]
    environment = os.environ | ({"SCHEDD_KERNELS": kernels} if kernels else {})
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_ready_daemon_has_loaded_no_library_for_pages_or_migrations(tmp_path: Path) -> None:
    config = write_settings(tmp_path)
    assert libraries_of_ready_daemon(config) == "alembic mako"  # the first start makes the tables
    assert libraries_of_ready_daemon(config) == ""


_WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None  # importing them fails
"""
_KERNELS_OF_A_PACKAGE = """
from schedd.plan.kernels import machine_code
machine_code.has_library = lambda module: True
machine_code.built_kernel = lambda function: function
import schedd.service.clusters
schedd.service.clusters.warm_up = lambda: None  # too slow where kernels are not compiled
"""


def write_settings(folder: Path) -> Path:
    config = folder / "schedd.toml"
    config.write_text(f'[store]\nurl = "sqlite:///{folder}/schedd.db"\n[clusters.main]\n')
    return config


def test_daemon_with_kernels_of_a_package_compiles_nothing_before_it_leads(tmp_path: Path) -> None:
    """Compilation takes half a minute; without it a first start takes as long as any other."""
    first = _WITHOUT_NUMBA + _KERNELS_OF_A_PACKAGE
    assert libraries_of_ready_daemon(write_settings(tmp_path), first) == "alembic mako"


@pytest.mark.soak
def test_daemon_with_built_kernels_calls_them_all_without_numba(tmp_path: Path) -> None:
    kernels = str(tmp_path / "kernels")
    environment = os.environ | {"SCHEDD_KERNELS": kernels, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "release/kernels.py", "--here"], cwd=ROOT, env=environment, check=True)
    assert libraries_of_ready_daemon(write_settings(tmp_path), _WITHOUT_NUMBA, kernels) == "alembic mako"


UNNEEDED_FOR_SETTINGS = (
    "numba",
    "rich",
    "schedd.engine",
    "schedd.plan.plan",
    "schedd.store",
    "sqlalchemy",
    "structlog",
)
"""For the daemon and for output; they take half the time of a command that reads or writes settings."""

_SETTINGS_SCRIPT = """
import sys
from schedd.cli.main import main

folder, maui = sys.argv[1:3]
codes = [
    main(["import", maui, "--output", f"{folder}/policy.toml"]),
    main(["config", "init", "--yes", "--dir", folder, "--server", "", "--admins", "root"]),
]
print(*codes, *sorted(set(sys.argv[3].split(",")) & set(sys.modules)))
"""


def test_import_and_config_init_load_no_library_for_the_daemon(tmp_path: Path) -> None:
    maui = ROOT / "tests/cli/examples/maui.cfg"
    command = [
        sys.executable,
        "-c",
        _SETTINGS_SCRIPT,
        str(tmp_path),
        str(maui),
        ",".join(UNNEEDED_FOR_SETTINGS),
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.stdout.splitlines()[-1] == "3 0", run.stderr  # 3: the example has blockers
    assert (tmp_path / "schedd.toml").is_file()


_DOCTOR_SCRIPT = """
import sys
from schedd.cli.main import main

code = main(["doctor", "--config", sys.argv[1], "--url", "http://127.0.0.1:1", "--quiet"])
print(code, *sorted(set(sys.argv[2].split(",")) & set(sys.modules)))
"""


def test_doctor_loads_no_engine(tmp_path: Path) -> None:
    config = write_settings(tmp_path)
    command = [sys.executable, "-c", _DOCTOR_SCRIPT, str(config), "numba,schedd.engine,schedd.plan.plan"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "no daemon answers" in run.stdout
    assert run.stdout.splitlines()[-1] == "2", run.stderr
