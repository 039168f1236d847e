"""An emulated pbs_server, TORQUE or OpenPBS, over a simulated cluster, for tests, demos and trials."""

from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.faults import Faults
from server_adapter.emulator.jobs import Job, JobOrder, JobOutcome, JobState
from server_adapter.emulator.nodes import EmulatedNode, NodeSpec
from server_adapter.emulator.openpbs.server import EmulatedOpenPBS
from server_adapter.emulator.openpbs.state import VERSION
from server_adapter.emulator.server import EmulatedServer
from server_adapter.emulator.simulated_server import Clock, SimulatedServer
from server_adapter.emulator.state import Timing
from server_adapter.emulator.trial import EmulatorTrial, TrialSummary, emulate
from server_adapter.emulator.workload import Arrival, make_order, read_nodes

OPENPBS = VERSION  # the version of OpenPBS that is emulated

__all__ = [
    "OPENPBS",
    "Arrival",
    "Clock",
    "EmulatedNode",
    "EmulatedOpenPBS",
    "EmulatedServer",
    "EmulatorTrial",
    "Faults",
    "Job",
    "JobOrder",
    "JobOutcome",
    "JobState",
    "NodeSpec",
    "RefusalError",
    "SimulatedServer",
    "Timing",
    "TrialSummary",
    "emulate",
    "make_order",
    "read_nodes",
]
