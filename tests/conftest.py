"""Fixtures that several packages' tests ask for."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def workloads() -> Path:
    """The directory of real logs: $SCHEDD_WORKLOADS, else ../shared/workloads beside the repository."""
    folder = Path(os.environ.get("SCHEDD_WORKLOADS") or ROOT.parent / "shared" / "workloads")
    if not folder.is_dir():
        pytest.skip(f"no real logs in {folder} (set SCHEDD_WORKLOADS to their directory)")
    return folder
