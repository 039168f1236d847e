"""Fixtures that several packages' tests ask for."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: the first example may compile a kernel, and the machine may be busy.
settings.register_profile("schedd", deadline=None)
if "CI" not in os.environ:  # there Hypothesis loads its own: no deadline, the same examples every time
    settings.load_profile("schedd")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def workloads() -> Path:
    """The directory of real logs: $SCHEDD_WORKLOADS, else ../shared/workloads beside the repository."""
    folder = Path(os.environ.get("SCHEDD_WORKLOADS") or ROOT.parent / "shared" / "workloads")
    if not folder.is_dir():
        pytest.skip(f"no real logs in {folder} (set SCHEDD_WORKLOADS to their directory)")
    return folder
