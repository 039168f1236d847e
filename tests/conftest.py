"""Fixtures that several packages' tests ask for."""

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


@pytest.fixture(scope="session")
def workloads() -> Path:
    """The directory of real logs: $SCHEDD_WORKLOADS, else ../shared/workloads beside the repository."""
    folder = Path(os.environ.get("SCHEDD_WORKLOADS") or ROOT.parent / "shared" / "workloads")
    if not folder.is_dir():
        pytest.skip(f"no real logs in {folder} (set SCHEDD_WORKLOADS to their directory)")
    return folder
