"""Owner of the peer: a process of another user is not accepted as pbs_server."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from server_adapter.batch.errors import RightsError, ServerUnreachableError
from server_adapter.batch.peer_owner import peer_owner_id
from server_adapter.batch.sockets import Address
from server_adapter.emulator import EmulatedServer, NodeSpec
from server_adapter.servers.torque.link import TorqueLink
from server_adapter.torque.credentials import TorqueAnyPort, Trqauthd

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to be somebody else")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_the_owner_of_the_peer_is_known_after_it_accepted(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family)) as listener:
        listener.bind((host, 0))
        listener.listen()
        with closing(socket.socket(family)) as client:
            client.connect(listener.getsockname())
            ends = client.getsockname()[:2], client.getpeername()[:2]
            assert peer_owner_id(*ends) is None
            with closing(listener.accept()[0]):
                assert peer_owner_id(*ends) == os.geteuid()


def test_the_owner_of_a_peer_on_another_host_is_unknown() -> None:
    assert peer_owner_id(("192.0.2.1", 1023), ("192.0.2.2", 15001)) is None


IMPOSTOR = f"""
import contextlib, os, socket
os.setuid({NOBODY})
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
while True:
    with contextlib.suppress(OSError):
        client, _ = listener.accept()
        while client.recv(4096):
            client.sendall(b"+2+2+0+0+6+0")
"""
NO_TRQAUTHD = f"""
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
os.setuid({NOBODY})
listener.listen()
print(flush=True)
listener.accept()[0].recv(9999)
"""


@pytest.fixture
def impostor() -> Iterator[int]:
    """Port of a foreign process that answers everything with an empty list of objects."""
    process = subprocess.Popen([sys.executable, "-c", IMPOSTOR], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield int(process.stdout.readline())
    process.kill()
    process.communicate()


@needs_root
@pytest.mark.anyio
async def test_an_impostor_on_the_servers_port_is_not_believed(impostor: int) -> None:
    address = Address("127.0.0.1", impostor)
    link = TorqueLink(address, TorqueAnyPort(), owner=0)
    with pytest.raises(ServerUnreachableError, match="is not pbs_server: a process of nobody answers"):
        async with link.borrow():
            pass
    unchecked = TorqueLink(address, TorqueAnyPort())
    async with unchecked.borrow() as connection:
        assert connection.peer_owner() == NOBODY
    await unchecked.close()


@pytest.mark.anyio
async def test_the_right_owner_is_believed_and_another_is_not() -> None:
    async with EmulatedServer([NodeSpec("n1")], version="4.2") as server:
        address = Address(*server.address)
        mine = TorqueLink(address, TorqueAnyPort(), owner=os.geteuid())
        async with mine.borrow() as connection:
            assert connection.usable
        await mine.close()
        with pytest.raises(ServerUnreachableError, match=r"server\.owner"):
            async with TorqueLink(address, TorqueAnyPort(), owner=os.geteuid() + 1).borrow():
                pass


@needs_root
@pytest.mark.anyio
async def test_a_socket_of_another_user_is_not_used_as_trqauthd(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("s") / "trqauthd-unix"
    command = [sys.executable, "-c", NO_TRQAUTHD, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        async with EmulatedServer([NodeSpec("n1")], version="4.2") as server:
            with pytest.raises(RightsError, match=f"a process of user {NOBODY} listens there"):
                await Trqauthd(path).connect(Address(*server.address), "alice", 2)
    finally:
        process.kill()
        process.communicate()
