"""A lab for every test that asks for one."""

import pytest

from server_adapter.torque.codes import SchedulerCommand
from tests.server_adapter.lab import Lab


@pytest.fixture
def lab() -> Lab:
    found = Lab()
    found.server.set_scheduling(True)
    assert found.command() is SchedulerCommand.FIRST
    return found
