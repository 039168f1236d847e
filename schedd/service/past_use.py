"""What was used before the daemon's first start: read from the server's accounting logs."""

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from schedd.dialect.accounting import parse_ended_run
from schedd.engine.settings import EngineSettings
from schedd.policy.fair_share import Held, Usage
from schedd.policy.site import site_policy

__all__ = ["past_use"]

_log = structlog.get_logger(__name__)
_DAILY = re.compile(r"(\d{8})(\.gz)?")
_KEYS = ("user", "group", "account", "project", "queue")
_GZIP_MAGIC = b"\x1f\x8b"


def past_use(settings: EngineSettings, cluster: str, now: int) -> Usage | None:
    """The usage of all runs that still count for fair share; None where the site names no logs.

    What cannot be read is told in the log and passed over: a daemon starts without it, too.
    """
    tree = site_policy(settings.site).fair_share
    where = (settings.site.get("fair_share") or {}).get("accounting")
    if tree is None or not where:
        return None
    usage = Usage(tree.interval)
    oldest = now - tree.depth * tree.interval
    runs = faults = 0
    for path in _files(Path(where), oldest, cluster):
        try:
            for line in _lines(path):
                if ";E;" not in line:
                    continue  # most records are of other kinds
                try:
                    run = parse_ended_run(line)
                except ValueError:
                    faults += 1
                    continue
                if run is not None and run.end > oldest:
                    values = run.values
                    whose = _Owner(*(values.get(key, "") for key in _KEYS))
                    waited = run.start - run.eligible
                    usage.book(Held(tree.path(whose), run.procs, run.start, min(run.end, now), waited))
                    runs += 1
        except (OSError, EOFError, zlib.error) as error:
            _log.error("an accounting log cannot be read", cluster=cluster, file=str(path), why=str(error))
    usage.forget(tree, now)
    _log.info("earlier use was read from accounting logs", cluster=cluster, runs=runs, malformed=faults)
    return usage


@dataclass(frozen=True, slots=True)
class _Owner:
    owner: str
    group: str
    account: str
    project: str
    queue: str


def _files(where: Path, oldest: int, cluster: str) -> Iterator[Path]:
    """The log itself, or of a directory those of days (YYYYMMDD) that may still count."""
    if not where.is_dir():
        yield where
        return
    first = f"{datetime.fromtimestamp(oldest, UTC) - timedelta(days=1):%Y%m%d}"
    names = sorted(path.name for path in where.iterdir() if _DAILY.fullmatch(path.name))
    if not names:
        _log.error("no accounting log (YYYYMMDD) in the directory", cluster=cluster, directory=str(where))
    yield from (where / name for name in names if name[:8] >= first)


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as raw:
        zipped = raw.read(2) == _GZIP_MAGIC
    with (gzip.open if zipped else open)(path, "rt", encoding="utf-8", errors="replace") as lines:
        yield from lines
