"""Planning mode of a new site: the modes are compared on its accounting logs, and one is recommended."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from schedd.wire import NodeFacts

COMPARED_JOBS: Final = 5_000  # number of latest jobs in the comparison of modes
_MOST_FILES: Final = 62  # number of latest files that are read: accounting logs are daily
_HOMES: Final = ("/var/spool/torque", "/var/spool/pbs")


def find_accounting_logs() -> Path | None:
    """Return the directory of accounting logs of a server on this host, or None.

    The server's home is ``PBS_HOME`` of the environment or of pbs.conf, or one of the usual directories.
    """
    for home in (*_configured_homes(), *_HOMES):
        found = Path(home) / "server_priv" / "accounting"
        if list_log_files(found):
            return found
    return None


def _configured_homes() -> list[str]:
    homes = [os.environ[name] for name in ("PBS_HOME",) if os.environ.get(name)]
    try:
        lines = (
            Path(os.environ.get("PBS_CONF_FILE", "/etc/pbs.conf")).read_text(encoding="utf-8").splitlines()
        )
    except (OSError, UnicodeDecodeError):
        return homes
    return homes + [line.partition("=")[2].strip() for line in lines if line.startswith("PBS_HOME=")]


def list_log_files(path: Path) -> list[Path]:
    """Return the file ``path``, or the latest files of a directory; empty if it is unreadable or has none."""
    try:
        if not path.is_dir():
            return [path] if path.is_file() else []
        files = sorted(file for file in path.iterdir() if file.is_file())
    except OSError:
        return []
    return files[-_MOST_FILES:]


def recommend_planning_mode(
    files: Sequence[Path], nodes: Sequence[NodeFacts], policy: Path | None, slack: str
) -> str | None:
    """Compare the modes on the latest jobs of ``files``, print the table and the recommendation, and return
    the mode; None if no comparison is possible, with the reason on standard error.

    ``nodes`` are the server's. ``policy`` is a site's file: see ``schedd import``.
    """
    # Here and not above: the other questions need not wait for the numeric libraries.
    from schedd.cli.replay_options import load_site_run  # noqa: PLC0415
    from schedd.cli.replay_recommend import compare_modes, print_recommendation  # noqa: PLC0415
    from schedd.optimize import SearchSettings  # noqa: PLC0415
    from schedd.policy.slack import Slack  # noqa: PLC0415
    from schedd.replay.comparison import ComparedMachine, Comparison  # noqa: PLC0415
    from schedd.replay.machine_state import ReplayDefectError  # noqa: PLC0415
    from schedd.replay.searches import SearchSchedule  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415

    if not nodes:
        _explain("without the server the machine's size is unknown")
        return None
    searching = SearchSchedule(search=SearchSettings(moves=200))
    try:
        promised = Slack.parse(slack)
        site = load_site_run(policy, {"moves": 200})
        if site is not None:
            settings = site.settings.with_changes(slack=str(promised))
            site = site._replace(settings=settings)
        wanted = Comparison(
            logs=files, machine=ComparedMachine(listed=nodes), estimates="user", last=COMPARED_JOBS
        )
        logs = compare_modes(wanted, searching, site, promised, note=_explain)
    except (TraceError, ReplayDefectError, ValueError, OSError) as error:
        _explain(f"the planning modes are not compared: {error}")
        return None
    return print_recommendation(logs, searching.every).mode


def planning_modes() -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of ``[clusters.NAME]`` by mode."""
    from schedd.replay.recommendation import MODES  # noqa: PLC0415

    return MODES


def _explain(text: str) -> None:
    print(f"schedd config init: {text}", file=sys.stderr)
