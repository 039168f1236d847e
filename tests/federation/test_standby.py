"""Two federations on one database: one leads, the other takes over with the log."""

import pytest

from schedd.federation.event_log import FederationLog
from schedd.federation.events import JobSubmitted
from schedd.store.errors import NotLeader
from tests.store.postgres import PostgresServer
from tests.waits import wait_until


def test_standby_federation_takes_over_the_log() -> None:
    server = PostgresServer()
    try:
        server.start()
        url = str(server.create("fed"))
        first, second = FederationLog(url, "north", 2.0), FederationLog(url, "south", 2.0)
        assert first.leadership.try_acquire()
        assert not second.leadership.try_acquire()
        assert second.read_leader() == "north"
        event = JobSubmitted(job="1", time=5, owner="ann@org", submission={"script": "x"})
        first.append([event])
        first.leadership._stopping.set()  # as if it hung: its lease is not renewed
        wait_until(second.leadership.try_acquire)
        assert second.leadership.term > first.leadership.term
        assert list(second.read()) == [event]
        with pytest.raises(NotLeader):
            first.append([event])
        assert list(second.read()) == [event]
        first._database.close()
        second.close()
    finally:
        server.close()
