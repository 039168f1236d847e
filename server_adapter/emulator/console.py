"""Console of a running emulated server: injects faults and moves the clock (`schedd emulate`)."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.simulated_server import SimulatedServer
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.notation import kib

Arguments = list[str]


class Console:
    """Executes one line at a time and returns an answer for people."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def execute(self, line: str) -> str:
        """Execute one line and return the answer. The answer to an unknown line is the help text."""
        name, *arguments = line.split() or [""]
        if name in ("", "help"):
            return HELP
        try:
            command = _COMMANDS[name][1]
            return await command(self._server, arguments)
        except RefusalError as error:
            return str(error)
        except (KeyError, ValueError, IndexError):
            return f"not understood: {line.strip()}\n{HELP}"


async def _status(server: SimulatedServer, arguments: Arguments) -> str:
    del arguments
    server.catch_up()
    cluster = server.cluster
    states = Counter(job.state.value for job in cluster.jobs.values())
    jobs = " ".join(f"{state}:{count}" for state, count in sorted(states.items())) or "no jobs"
    nodes = Counter(node.state for node in cluster.nodes.values())
    return f"{jobs}; nodes " + " ".join(f"{state}:{count}" for state, count in sorted(nodes.items()))


async def _kill(server: SimulatedServer, arguments: Arguments) -> str:
    for name in arguments:
        server.kill_node(name)
    return f"killed: the server notices after {server.cluster.timing.node_check:g} s"


async def _revive(server: SimulatedServer, arguments: Arguments) -> str:
    for name in arguments:
        server.revive_node(name)
    return "back"


async def _off(server: SimulatedServer, arguments: Arguments) -> str:
    for name in arguments:
        server.switch_off(name)
    return f"off: the server notices after {server.cluster.timing.node_check:g} s"


async def _on(server: SimulatedServer, arguments: Arguments) -> str:
    boots = float(arguments[0])
    for name in arguments[1:]:
        server.switch_on(name, boots)
    return f"on: they are up in {boots:g} s"


async def _load(server: SimulatedServer, arguments: Arguments) -> str:
    load = float(arguments[1]) if len(arguments) > 1 else None
    available = kib(arguments[2]) if len(arguments) > 2 else None
    server.lie_about_load(arguments[0], load=load, available=available)
    return "tells the truth" if load is None else "lies"


async def _refuse(server: SimulatedServer, arguments: Arguments) -> str:
    code = TorqueErrorCode(int(arguments[1])) if len(arguments) > 1 else TorqueErrorCode.MOMREJECT
    server.faults.refuse_runs(int(arguments[0]), code)
    return f"refuses with {int(code)}"


async def _return(server: SimulatedServer, arguments: Arguments) -> str:
    server.faults.return_runs(int(arguments[0]))
    return "returns"


async def _reject(server: SimulatedServer, arguments: Arguments) -> str:
    server.faults.reject_jobs(arguments)
    return f"{', '.join(arguments)} rejects jobs" if arguments else "no node rejects jobs"


async def _fail(server: SimulatedServer, arguments: Arguments) -> str:
    server.faults.fail_jobs(float(arguments[0]))
    return "fails"


async def _delay(server: SimulatedServer, arguments: Arguments) -> str:
    server.faults.slow_down(float(arguments[0]))
    return "slow"


async def _rerun(server: SimulatedServer, arguments: Arguments) -> str:
    server.faults.requeue_slowly(float(arguments[0]))
    return "reruns slowly"


async def _silent(server: SimulatedServer, arguments: Arguments) -> str:
    server.faults.be_silent(int(arguments[0]))
    return "silent"


async def _cut(server: SimulatedServer, arguments: Arguments) -> str:
    server.faults.cut_replies(int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 10)
    return "cuts"


async def _restart(server: SimulatedServer, arguments: Arguments) -> str:
    requeues = "requeue" in arguments
    seconds = [one for one in arguments if one != "requeue"]
    await server.restart(float(seconds[0]) if seconds else 0.5, requeues=requeues)
    return "restarted"


async def _behave(server: SimulatedServer, arguments: Arguments) -> str:
    del arguments
    server.faults.clear()
    return "behaves"


async def _skip(server: SimulatedServer, arguments: Arguments) -> str:
    server.skip(float(arguments[0]))
    await asyncio.sleep(0)
    return await _status(server, [])


_COMMANDS: Mapping[str, tuple[str, Callable[[SimulatedServer, Arguments], Awaitable[str]]]] = {
    "status": ("status                 jobs and nodes by state", _status),
    "kill": ("kill NODE…             nodes die; the server notices later", _kill),
    "revive": ("revive NODE…           they are back, and report what has ended", _revive),
    "off": ("off NODE…              nodes are switched off; the server notices later", _off),
    "on": ("on SECONDS NODE…       nodes are switched on, and need so long to boot", _on),
    "load": ("load NODE LOAD [MEM]   a node lies about load and free memory; without LOAD no more", _load),
    "refuse": ("refuse N [CODE]        the next N runs are refused (15043)", _refuse),
    "return": ("return N               the next N asynchronous runs come back into the queue", _return),
    "reject": ("reject NODE…           the daemons of these nodes refuse every job; of no others", _reject),
    "fail": ("fail SHARE             this share of the jobs fails at once", _fail),
    "delay": ("delay SECONDS          waits before each answer", _delay),
    "rerun": ("rerun SECONDS          a rerun ends the run only after so long", _rerun),
    "silent": ("silent N               the next N requests get no answer", _silent),
    "cut": ("cut N [BYTES]          the next N replies end after so many bytes, with the connection", _cut),
    "restart": ("restart [SECONDS] [requeue]  all connections end; back after so long", _restart),
    "behave": ("behave                 all of these off, but for nodes", _behave),
    "skip": ("skip SECONDS           moves the simulated clock", _skip),
}
HELP = "\n".join(text for text, _ in _COMMANDS.values())  # one line for each command
