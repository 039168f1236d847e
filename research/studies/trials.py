"""The trial of a study: a digest of the results of its quick run. A page stays true for newer sources with
the same digest.
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

_NO_FIGURES: Final = ("command", "sources", "trial", "repeated")
TIMES: Final = ("cpu_s", "cpu_ms_per_job", "planner_s", "cycle_ms", "cycle_p99_ms", "us_per_job")
"""What differs between two runs of the same sources."""


def trial_of(name: str, run: Callable[..., None], logs: Path) -> str:
    """Run the study ``name`` quickly and return the digest of its figures: 12 hexadecimal digits.

    Raises what the run raises.
    """
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        run(logs, Path(folder), quick=True, only=())
        figures = json.loads((Path(folder) / f"{name}-quick.json").read_text(encoding="utf-8"))
    return digest(figures)


def digest(figures: Mapping[str, Any]) -> str:
    """Return the digest of a study's figures, without processor times."""
    kept = {key: _without_times(value) for key, value in figures.items() if key not in _NO_FIGURES}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(one) for key, one in value.items() if key not in TIMES}
    if isinstance(value, list):  # several processes add the rows, in any order
        return sorted((_without_times(one) for one in value), key=json.dumps)
    return value
