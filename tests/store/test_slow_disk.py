"""A slow disk: reported, reads do not wait, and no acknowledged event is lost."""

import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.store.daemons import TOKEN, AwayError, DaemonProcess, Nursery
from tests.store.preloaded import Preloaded, compiled
from tests.store.test_lost import MAIN, job, work

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The file named by SLOW_DISK says how many milliseconds a sync takes; SLOW_FILES is a part of the path of
   the files that are slow. A write takes a hundredth of a sync. */
static void slow(int file, int share) {
    char link[64], path[512], text[16];
    const char *control = getenv("SLOW_DISK"), *which = getenv("SLOW_FILES");
    if (!control || !which) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return;
    path[size] = 0;
    if (!strstr(path, which)) return;
    int from = open(control, O_RDONLY | O_CLOEXEC);
    if (from < 0) return;
    size = read(from, text, sizeof text - 1);
    close(from);
    text[size > 0 ? size : 0] = 0;
    long us = atol(text) * 1000 / share;
    struct timespec wait = {us / 1000000, us % 1000000 * 1000};
    if (us > 0) nanosleep(&wait, 0);
}
int fsync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    slow(file, 1);
    return real(file);
}
int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    slow(file, 1);
    return real(file);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    slow(file, 100);
    return real(file, data, size, at);
}
"""
_LONG_MS = (50, 200, 500, 1000, 2000)


class Disk:
    """How slow it is."""

    def __init__(self, folder: Path, files: str) -> None:
        self._control = folder / "slow"
        folder.chmod(0o755)
        self.takes(0)
        library = compiled(_SOURCE, folder)
        self.environment = {
            "LD_PRELOAD": str(library),
            "SLOW_DISK": str(self._control),
            "SLOW_FILES": files,
        }

    def takes(self, milliseconds: int) -> None:
        self._control.write_text(f"{milliseconds}\n")


def measured(daemon: DaemonProcess, metric: str) -> float:
    asked = Request(f"http://127.0.0.1:{daemon.port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(asked, timeout=60) as answer:
        text = answer.read().decode()
    found = re.search(rf"(?m)^{re.escape(metric)} (\S+)$", text)
    assert found is not None, metric
    return float(found[1])


def post(daemon: DaemonProcess, number: int) -> None:
    event = {"type": "job_queued", "id": f"j:{number}", "time": int(time.time()), "job": job(number)}
    daemon.post(f"{MAIN}/events", {"events": [event]})


def meanwhile(daemon: DaemonProcess, number: int) -> int:
    """Send an event; how many reads were answered before it was acknowledged."""
    done = threading.Event()
    beside = DaemonProcess.beside(daemon)
    beside.patience = 120.0

    def send() -> None:
        post(beside, number)
        done.set()

    sender = threading.Thread(target=send)
    sender.start()
    reads = 0
    while not done.is_set():
        assert daemon.get(f"{MAIN}/jobs", limit=10)["as_of"]
        reads += not done.is_set()
    sender.join()
    beside.hang_up()
    return reads


@pytest.fixture
def slow(nursery: Nursery, tmp_path: Path) -> Iterator[tuple[Preloaded, Disk]]:
    """A daemon on a SQLite file, and the disk of it."""
    disk = Disk(tmp_path, ".sqlite")
    daemon = Preloaded(nursery, tmp_path, f"sqlite:///{tmp_path}/a.sqlite", checkpoint=0.5)
    daemon.environment = disk.environment
    daemon.start().await_ready()
    yield daemon, disk
    daemon.kill()


def try_out(daemon: Preloaded, disk: Disk, delays: tuple[int, ...]) -> list[int]:
    """At each delay: visible in the metrics, reads are fast; then the daemon is killed."""
    work(daemon, 0, 3)
    number, found = 3, []
    for delay in delays:
        # Events and decisions of a batch are synced together, as a part of the record.
        record, lag = 'schedd_batch_seconds_sum{cluster="main",part="record"}', "schedd_event_lag_seconds_sum"
        before = measured(daemon, record), measured(daemon, f'{lag}{{cluster="main"}}')
        disk.takes(delay)
        found.append(meanwhile(daemon, number))
        number += 1
        assert measured(daemon, record) - before[0] >= delay / 1000
        assert measured(daemon, f'{lag}{{cluster="main"}}') - before[1] >= delay / 1000
        lost = threading.Thread(target=_unheard, args=(DaemonProcess.beside(daemon), 1_000 + number))
        lost.start()
        time.sleep(delay / 2000)
        daemon.kill()
        lost.join()
        disk.takes(0)
        daemon.start().await_ready()
        there = {one["id"] for one in daemon.get(f"{MAIN}/jobs", limit=100)["jobs"]}
        assert there >= {f"{one}.s" for one in range(number)}
    return found


def _unheard(daemon: DaemonProcess, number: int) -> None:
    try:
        post(daemon, number)
    except AwayError:
        pass
    finally:
        daemon.hang_up()


def test_slow_disk_delays_events_but_not_reads(slow: tuple[Preloaded, Disk]) -> None:
    reads = try_out(*slow, (700,))
    assert min(reads) >= 3, reads


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_disk_speeds(slow: tuple[Preloaded, Disk], capsys: pytest.CaptureFixture[str]) -> None:
    reads = try_out(*slow, _LONG_MS)
    with capsys.disabled():
        sys.stdout.write(f"\nreads answered while one event waited for {_LONG_MS} ms a sync: {reads}\n")
    assert min(reads[2:]) >= 3
