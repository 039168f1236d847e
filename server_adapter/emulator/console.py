"""Words that make a running emulated server misbehave, or pass time; `schedd emulate` reads them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.simulated import SimulatedServer
from server_adapter.torque.errors import ServerCode
from server_adapter.torque.values import kib

Words = list[str]


class Console:
    """Carries out one line at a time; the answer is for people."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def say(self, line: str) -> str:
        """Does what the line says. A line that cannot be understood is answered with what can be."""
        name, *words = line.split() or [""]
        if name in ("", "help"):
            return HELP
        try:
            command = _COMMANDS[name][1]
            return await command(self._server, words)
        except RefusalError as error:
            return str(error)
        except (KeyError, ValueError, IndexError):
            return f"not understood: {line.strip()}\n{HELP}"


async def _status(server: SimulatedServer, words: Words) -> str:
    del words
    server.catch_up()
    cluster = server.cluster
    states = Counter(job.state.value for job in cluster.jobs.values())
    jobs = " ".join(f"{state}:{count}" for state, count in sorted(states.items())) or "no jobs"
    nodes = Counter(node.state for node in cluster.nodes.values())
    return f"{jobs}; nodes " + " ".join(f"{state}:{count}" for state, count in sorted(nodes.items()))


async def _kill(server: SimulatedServer, words: Words) -> str:
    for name in words:
        server.kill_node(name)
    return f"killed: the server notices after {server.cluster.timing.node_check:g} s"


async def _revive(server: SimulatedServer, words: Words) -> str:
    for name in words:
        server.revive_node(name)
    return "back"


async def _off(server: SimulatedServer, words: Words) -> str:
    for name in words:
        server.switch_off(name)
    return f"off: the server notices after {server.cluster.timing.node_check:g} s"


async def _on(server: SimulatedServer, words: Words) -> str:
    boots = float(words[0])
    for name in words[1:]:
        server.switch_on(name, boots)
    return f"on: they are up in {boots:g} s"


async def _load(server: SimulatedServer, words: Words) -> str:
    load = float(words[1]) if len(words) > 1 else None
    available = kib(words[2]) if len(words) > 2 else None
    server.lie_about_load(words[0], load=load, available=available)
    return "tells the truth" if load is None else "lies"


async def _refuse(server: SimulatedServer, words: Words) -> str:
    code = ServerCode(int(words[1])) if len(words) > 1 else ServerCode.MOMREJECT
    server.faults.refuse_runs(int(words[0]), code)
    return f"refuses with {int(code)}"


async def _return(server: SimulatedServer, words: Words) -> str:
    server.faults.return_runs(int(words[0]))
    return "returns"


async def _reject(server: SimulatedServer, words: Words) -> str:
    server.faults.reject_jobs(words)
    return f"{', '.join(words)} rejects jobs" if words else "no node rejects jobs"


async def _fail(server: SimulatedServer, words: Words) -> str:
    server.faults.fail_jobs(float(words[0]))
    return "fails"


async def _delay(server: SimulatedServer, words: Words) -> str:
    server.faults.slow_down(float(words[0]))
    return "slow"


async def _silent(server: SimulatedServer, words: Words) -> str:
    server.faults.be_silent(int(words[0]))
    return "silent"


async def _cut(server: SimulatedServer, words: Words) -> str:
    server.faults.cut_replies(int(words[0]), int(words[1]) if len(words) > 1 else 10)
    return "cuts"


async def _restart(server: SimulatedServer, words: Words) -> str:
    await server.restart(float(words[0]) if words else 0.5)
    return "restarted"


async def _behave(server: SimulatedServer, words: Words) -> str:
    del words
    server.faults.clear()
    return "behaves"


async def _skip(server: SimulatedServer, words: Words) -> str:
    server.skip(float(words[0]))
    await asyncio.sleep(0)
    return await _status(server, [])


_COMMANDS: Mapping[str, tuple[str, Callable[[SimulatedServer, Words], Awaitable[str]]]] = {
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
    "silent": ("silent N               the next N requests get no answer", _silent),
    "cut": ("cut N [BYTES]          the next N replies end after so many bytes, with the connection", _cut),
    "restart": ("restart [SECONDS]      all connections end; back after so long", _restart),
    "behave": ("behave                 all of these off, but for nodes", _behave),
    "skip": ("skip SECONDS           moves the simulated clock", _skip),
}
HELP = "\n".join(text for text, _ in _COMMANDS.values())
"""One line for each command."""
