"""A slow disk: reported, reads do not wait, and no acknowledged event is lost."""

import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.store.daemon_processes import TOKEN, DaemonProcess, UnavailableError
from tests.store.forked_processes import DaemonLauncher
from tests.store.preloaded_daemon import PreloadedDaemon, compile_library
from tests.store.test_log_loss import MAIN, job, work
from tests.waits import WAIT_S

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


class SlowDisk:
    """Delays the syncs of the daemon's files."""

    def __init__(self, folder: Path, files: str) -> None:
        self._control = folder / "slow"
        folder.chmod(0o755)
        self.set_delay(0)
        library = compile_library(_SOURCE, folder)
        self.environment = {
            "LD_PRELOAD": str(library),
            "SLOW_DISK": str(self._control),
            "SLOW_FILES": files,
        }

    def set_delay(self, milliseconds: int) -> None:
        self._control.write_text(f"{milliseconds}\n")


def measured(daemon: DaemonProcess, metric: str) -> float:
    asked = Request(f"http://127.0.0.1:{daemon.port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(asked, timeout=WAIT_S) as answer:
        text = answer.read().decode()
    found = re.search(rf"(?m)^{re.escape(metric)} (\S+)$", text)
    assert found is not None, metric
    return float(found[1])


def post(daemon: DaemonProcess, number: int) -> None:
    event = {"type": "job_queued", "id": f"j:{number}", "time": int(time.time()), "job": job(number)}
    daemon.post(f"{MAIN}/events", {"events": [event]})


def reads_during_event(daemon: DaemonProcess, number: int) -> int:
    """Send an event; return the number of reads answered before its acknowledgement."""
    done = threading.Event()
    beside = DaemonProcess.beside(daemon)
    beside.patience = WAIT_S

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
def slow_daemon(launcher: DaemonLauncher, tmp_path: Path) -> Iterator[tuple[PreloadedDaemon, SlowDisk]]:
    """A daemon with a SQLite file, and its slow disk."""
    disk = SlowDisk(tmp_path, ".sqlite")
    daemon = PreloadedDaemon(launcher, tmp_path, f"sqlite:///{tmp_path}/a.sqlite", checkpoint=0.5)
    daemon.environment = disk.environment
    daemon.start().await_ready()
    yield daemon, disk
    daemon.kill()


def run_delays(daemon: PreloadedDaemon, disk: SlowDisk, delays: tuple[int, ...]) -> list[int]:
    """For each delay, check the metrics, count reads during an event, and kill the daemon."""
    work(daemon, 0, 3)
    number, found = 3, []
    for delay in delays:
        # Events and decisions of a batch are synced together, as a part of the record.
        record, lag = 'schedd_batch_seconds_sum{cluster="main",part="record"}', "schedd_event_lag_seconds_sum"
        before = measured(daemon, record), measured(daemon, f'{lag}{{cluster="main"}}')
        disk.set_delay(delay)
        found.append(reads_during_event(daemon, number))
        number += 1
        assert measured(daemon, record) - before[0] >= delay / 1000
        assert measured(daemon, f'{lag}{{cluster="main"}}') - before[1] >= delay / 1000
        lost = threading.Thread(
            target=_post_unacknowledged, args=(DaemonProcess.beside(daemon), 1_000 + number)
        )
        lost.start()
        time.sleep(delay / 2000)
        daemon.kill()
        lost.join()
        disk.set_delay(0)
        daemon.start().await_ready()
        there = {one["id"] for one in daemon.get(f"{MAIN}/jobs", limit=100)["jobs"]}
        assert there >= {f"{one}.s" for one in range(number)}
    return found


def _post_unacknowledged(daemon: DaemonProcess, number: int) -> None:
    try:
        post(daemon, number)
    except UnavailableError:
        pass
    finally:
        daemon.hang_up()


def test_slow_disk_delays_events_but_not_reads(slow_daemon: tuple[PreloadedDaemon, SlowDisk]) -> None:
    reads = run_delays(*slow_daemon, (700,))
    assert min(reads) >= 3, reads


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_reads_continue_at_all_disk_speeds(
    slow_daemon: tuple[PreloadedDaemon, SlowDisk], capsys: pytest.CaptureFixture[str]
) -> None:
    reads = run_delays(*slow_daemon, _LONG_MS)
    with capsys.disabled():
        sys.stdout.write(f"\nreads answered while one event waited for {_LONG_MS} ms a sync: {reads}\n")
    assert min(reads[2:]) >= 3
