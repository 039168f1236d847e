"""An emulated pbs_server over a simulated cluster, for tests, demos and trials without a TORQUE."""

from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.faults import Faults
from server_adapter.emulator.jobs import Job, Order, Outcome, State
from server_adapter.emulator.nodes import Node, NodeSpec
from server_adapter.emulator.server import Clock, EmulatedServer
from server_adapter.emulator.state import Timing
from server_adapter.emulator.trial import Summary, Trial, emulate
from server_adapter.emulator.workload import Arrival, order_of, read_nodes

__all__ = [
    "Arrival",
    "Clock",
    "EmulatedServer",
    "Faults",
    "Job",
    "Node",
    "NodeSpec",
    "Order",
    "Outcome",
    "RefusalError",
    "State",
    "Summary",
    "Timing",
    "Trial",
    "emulate",
    "order_of",
    "read_nodes",
]
