"""Fixtures that several packages' tests ask for."""

import fcntl
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: the first example may compile a kernel, and the machine may be busy. The same examples each
# time, so that a change is judged by what it changed; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("schedd", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "schedd"))

ROOT = Path(__file__).resolve().parent.parent


_PLANNING = ("plan", "optimize", "engine", "replay", "bench", "service", "store", "api", "dashboard")
"""Folders of tests that plan jobs."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile the kernels before the first test that plans: with an empty cache that takes minutes, which
    would count as the time of a test, or of its first example.
    """
    here = Path(__file__).parent
    if not any(item.path.relative_to(here).parts[0] in _PLANNING for item in session.items):
        return
    from schedd.plan.kernels import jit  # noqa: PLC0415  (costs a second)
    from schedd.service.warmup import warm_up  # noqa: PLC0415

    folder = jit.cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / f"compiled-{hashlib.sha256(jit.__file__.encode()).hexdigest()[:16]}"
    with (folder / "compiling").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test processes one compiles, the others wait
        if not done.exists():
            warm_up()
            done.touch()


@pytest.fixture(scope="session")
def workloads() -> Path:
    """The directory of real logs: $SCHEDD_WORKLOADS, else ../shared/workloads beside the repository."""
    folder = Path(os.environ.get("SCHEDD_WORKLOADS") or ROOT.parent / "shared" / "workloads")
    if not folder.is_dir():
        pytest.skip(f"no real logs in {folder} (set SCHEDD_WORKLOADS to their directory)")
    return folder
