"""Durable state of the adapter: its epoch, the highest term, the requested runs."""

import contextlib
import errno
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any
from uuid import uuid4

from schedd.wire import Alert
from server_adapter.bridge.decision_order import DecisionOrder, decision_order

_KEPT = 600  # retention of requested runs in seconds
_SHORTENED_AT = 1_000  # minimum lines of the file of runs for a compaction
_log = logging.getLogger(__name__)


def give_to_directory_owner(path: Path) -> None:
    """Give a file created by root to the owner of its directory, the adapter's user."""
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


class JournalError(Exception):
    """The state directory cannot be used; the message has the file and the reason."""


class JournalWriteError(Exception):
    """A record could not be written, as on a full disk: its request may not be sent."""

    def __init__(self, directory: Path, error: OSError) -> None:
        super().__init__(f"the adapter cannot write to its state directory {directory}: {error.strerror}")


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room on its disk"
    return "set state_dir to one that may be written"


class Journal:
    """Durable state in small files of the state directory.

    `state.json` holds the adapter's id, the epoch (incremented at each start), the highest leader's term, the
    last alert, the jobs on hold for a checkpoint, and the latest extensions of runs. `runs` gets a line
    before each request of a run, so that no decision is executed twice after a restart, and one without a
    decision before the run is preempted. `lock` excludes a second adapter. The constructor raises
    `JournalError`. A method that records something before its request raises `JournalWriteError`.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._is_line_cut = False  # whether a full disk took only a part of the last line of `runs`
        with contextlib.ExitStack() as unless_kept:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                self._lock = (directory / "lock").open("w", encoding="utf-8")
                unless_kept.callback(self._lock.close)
                give_to_directory_owner(directory / "lock")
                flock(self._lock, LOCK_EX | LOCK_NB)
                self._restore(self._read())
            except (ValueError, TypeError, AttributeError) as error:
                raise JournalError(f"{directory / 'state.json'} is damaged ({error}); remove it") from error
            except BlockingIOError:
                raise JournalError(
                    f"another pbs-adapter works with the state directory {directory}"
                ) from None
            except OSError as error:
                raise JournalError(
                    f"state directory {directory}: {error.strerror}; {_remedy(error)}"
                ) from error
            unless_kept.pop_all()

    def _restore(self, before: Mapping[str, Any]) -> None:
        self.adapter = str(before.get("adapter") or uuid4().hex)
        """The adapter's id, made at its first start: the daemon admits one adapter at a time."""
        self.epoch = max(int(before.get("epoch", 0)) + 1, int(self._clock()))
        self.term = int(before.get("term", 0))
        self._alert = DecisionOrder(
            *(int(before.get(name, 0)) for name in ("alert_term", "alert_number", "alert_time"))
        )
        self._extensions = {str(key): float(at) for key, at in before.get("extensions", {}).items()}
        self._holds = {str(job) for job in before.get("checkpoint_holds", ())}
        self.trouble = ""
        """Why the state was not written at the last change; empty if it was."""
        self._save()
        recent = self._recent_runs()
        self.requested: dict[str, float] = {}
        """Time of the request by job, for the runs of the last minutes that were not preempted."""
        for moment, job, decision in recent:
            if decision:
                self.requested[job] = moment
            else:
                self.requested.pop(job, None)
        self.requested_before = frozenset(decision for _, _, decision in recent if decision)
        """Decisions among them that were requested before this start."""
        self._write_runs(recent)

    def record_term(self, term: int) -> None:
        """Keeps the highest term."""
        if term > self.term:
            before, self.term = self.term, term
            try:
                self._record_state()
            except JournalWriteError:
                self.term = before
                raise

    def record_alert(self, alert: Alert) -> bool:
        """Return whether an alert of the daemon is new, and record it.

        The daemon offers its latest alerts again to a restarted adapter. An alert that cannot be recorded is
        new.
        """
        order = decision_order(alert)
        if not order.follows(self._alert):
            return False
        self._alert = order
        self._record_if_possible()
        return True

    def is_set(self, job: str) -> bool:
        """Return whether the adapter has held a job for a checkpoint, and not lifted the hold yet."""
        return job in self._holds

    def record(self, job: str) -> None:
        """Record the hold of a job for a checkpoint, right before its request."""
        if job not in self._holds:
            self._holds.add(job)
            self._record_state()

    def forget(self, job: str) -> None:
        """Record that the hold of a job was lifted, or is gone."""
        if job in self._holds:
            self._holds.discard(job)
            self._record_if_possible()

    def record_extension(self, decision: str) -> None:
        """Record the key of a decision to extend a run, right before its request."""
        now = self._clock()
        self._extensions = {key: at for key, at in self._extensions.items() if now - at < _KEPT}
        self._extensions[decision] = now
        self._record_state()

    def was_extension_requested(self, decision: str) -> bool:
        """Return whether this extension was requested, perhaps before a restart."""
        return decision in self._extensions

    def record_request(self, job: str, decision: str) -> None:
        """Record a run right before its request."""
        now = self._clock()
        self._record_run(now, job, decision)
        self.requested.pop(job, None)  # the latest is the last one
        self.requested[job] = now

    def record_preemption(self, job: str) -> None:
        """Record that the run of a job is to be ended, right before the request: its return to the queue is
        expected, also after a restart.
        """
        if self.requested.pop(job, None) is not None:
            self._record_run(self._clock(), job, "")

    def close(self) -> None:
        with contextlib.suppress(OSError):  # such as a full disk: the record was refused before
            self._runs.close()
        self._lock.close()

    def _record_run(self, moment: float, job: str, decision: str) -> None:
        try:
            if self._lines >= self._shortened_at:
                self._forget_old(moment)
            self._note(moment, job, decision)
        except OSError as error:
            raise JournalWriteError(self._directory, error) from error

    def _record_state(self) -> None:
        try:
            self._save()
        except OSError as error:
            raise JournalWriteError(self._directory, error) from error

    def retry(self) -> None:
        """Write the state again if that failed at the last change, as when a disk was full, or if the files
        were moved away meanwhile.
        """
        if self.trouble or not self._are_runs_in_place():
            self._record_if_possible()

    def _record_if_possible(self) -> None:
        """Record something that may be done again after a restart."""
        try:
            self._check_runs_in_place()
            self._save()
            self.trouble = ""
        except OSError as error:
            before, self.trouble = self.trouble, str(JournalWriteError(self._directory, error))
            if self.trouble != before:
                _log.error("%s", self.trouble)

    def _are_runs_in_place(self) -> bool:
        """Return whether a restart would read the open file of runs: writes go on with one that was moved."""
        try:
            found = (self._directory / "runs").stat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._runs.fileno()))

    def _check_runs_in_place(self) -> None:
        if not self._are_runs_in_place():
            raise OSError(errno.ENOENT, "its file runs was moved or deleted while in use: put it back")

    def _note(self, moment: float, job: str, decision: str) -> None:
        self._check_runs_in_place()
        line = f"{moment:.3f} {job} {decision}\n".encode()
        if self._is_line_cut:
            line = b"\n" + line
        self._is_line_cut = True
        if self._runs.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._is_line_cut = False
        self._lines += 1

    def _write_runs(self, recent: Sequence[tuple[float, str, str]]) -> None:
        """Replace the file of runs by one with these entries."""
        fresh = self._directory / "runs.new"
        with fresh.open("w", encoding="utf-8") as file:
            file.writelines(f"{moment:.3f} {job} {decision}\n" for moment, job, decision in recent)
            file.flush()
            os.fsync(file.fileno())
        give_to_directory_owner(fresh)
        fresh.replace(self._directory / "runs")
        self._runs = (self._directory / "runs").open("ab", buffering=0)
        self._lines, self._shortened_at = len(recent), max(_SHORTENED_AT, 2 * len(recent))
        self._is_line_cut = False

    def _forget_old(self, now: float) -> None:
        """Remove runs that were requested long ago, from memory and from the file."""
        recent = self._recent_runs()
        with contextlib.closing(self._runs):
            self._write_runs(recent)
        self.requested = {job: at for job, at in self.requested.items() if now - at < _KEPT}

    def _read(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self._directory / "state.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}

    def _save(self) -> None:
        fresh = self._directory / "state.json.new"
        with fresh.open("w", encoding="utf-8") as file:
            last = self._alert
            alert = {"alert_term": last.term, "alert_number": last.number, "alert_time": last.time}
            kept = {"adapter": self.adapter, "epoch": self.epoch, "term": self.term, **alert}
            more = {"checkpoint_holds": sorted(self._holds), "extensions": self._extensions}
            json.dump({**kept, **more}, file)
            file.flush()
            os.fsync(file.fileno())
        give_to_directory_owner(fresh)
        fresh.replace(self._directory / "state.json")

    def _recent_runs(self) -> list[tuple[float, str, str]]:
        try:
            lines = (self._directory / "runs").read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            moment, _, rest = line.partition(" ")
            job, _, decision = rest.partition(" ")
            try:
                asked = float(moment)
            except ValueError:
                continue  # cut by a crash
            if job and self._clock() - asked < _KEPT:
                found.append((asked, job, decision))
        return found
