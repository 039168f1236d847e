"""An emulated pbs_server, TORQUE or OpenPBS, over a simulated cluster, for tests, demos and trials."""

from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.faults import Faults
from server_adapter.emulator.jobs import Job, JobOutcome, JobState, Order
from server_adapter.emulator.nodes import Node, NodeSpec
from server_adapter.emulator.openpbs.server import EmulatedOpenPBS
from server_adapter.emulator.openpbs.state import VERSION
from server_adapter.emulator.server import EmulatedServer
from server_adapter.emulator.simulated import Clock, SimulatedServer
from server_adapter.emulator.state import Timing
from server_adapter.emulator.trial import Summary, Trial, emulate
from server_adapter.emulator.workload import Arrival, order_of, read_nodes

OPENPBS = VERSION
"""The version of OpenPBS that is emulated."""

__all__ = [
    "OPENPBS",
    "Arrival",
    "Clock",
    "EmulatedOpenPBS",
    "EmulatedServer",
    "Faults",
    "Job",
    "JobOutcome",
    "JobState",
    "Node",
    "NodeSpec",
    "Order",
    "RefusalError",
    "SimulatedServer",
    "Summary",
    "Timing",
    "Trial",
    "emulate",
    "order_of",
    "read_nodes",
]
