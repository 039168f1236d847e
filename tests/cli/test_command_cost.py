"""The cost of commands that a site runs first: counted by what they import, not by a clock."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT

_UNNEEDED = frozenset(
    (
        *("alembic", "bokeh", "fastapi", "httpx2", "jinja2", "llvmlite", "matplotlib", "numba", "pandas"),
        *("prometheus_client", "pymoo", "scipy", "sqlalchemy", "starlette", "structlog", "uvicorn"),
    )
)
"""Libraries for the daemon, pages, charts and searches."""
_UNNEEDED_PACKAGES = (
    *("schedd.api", "schedd.dashboard", "schedd.engine", "schedd.optimize", "schedd.replay", "schedd.store"),
    "server_adapter.emulator",
)
_MOST_MODULES = 700
_SCRIPT = """
import json, sys
from schedd.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def modules_of(*arguments: str) -> Sequence[str]:
    """Return the modules that a command has loaded at its end."""
    command = [sys.executable, "-c", _SCRIPT, *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    code, found = json.loads(run.stderr.splitlines()[-1])
    assert code in (0, 3), run.stderr  # 3: an import with blockers
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("command", ["config init", "import maui", "import sched_config"])
def test_first_commands_of_a_site_load_only_what_they_need(command: str, tmp_path: Path) -> None:
    examples = ROOT / "tests" / "cli" / "examples"
    arguments = {
        "config init": ["config", "init", "--yes", "--server", "", "--dir", str(tmp_path)],
        "import maui": ["import", str(examples / "maui.cfg"), "--server", ""],
        "import sched_config": ["import", str(examples / "torque" / "sched_config"), "--server", ""],
    }
    found = modules_of(*arguments[command])
    assert not _UNNEEDED & {name.partition(".")[0] for name in found}
    assert not [name for name in found if name.startswith(_UNNEEDED_PACKAGES)]
    assert len(found) <= _MOST_MODULES
