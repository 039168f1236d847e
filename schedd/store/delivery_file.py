"""A file next to a SQLite database with acknowledged deliveries whose events may not be in the log yet.

SQLite has one lock for all writers, and its transactions take several steps: a delivery waited for the
planner and the history of jobs. Here it is one write with one sync, at an allocated place.

The file has two regions of records. A record is written once; its first word is cleared, without a sync, when
its events are in the log: if a power failure undoes that, the events are known by their ids. A region whose
records are all cleared is written from its beginning again, in a new epoch. The records of a region end at
the first one that is torn, or of another epoch.
"""

import glob
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final

from schedd.store.errors import DatabaseUnavailable, DiskFull

_ENDING: Final = ".deliveries"
_FORMAT: Final = 1
_HEADER: Final = 4096  # bytes before the first region
_REGION: Final = 4 << 20
_SECTOR: Final = 512  # records begin at sectors, so that a torn write damages no other record
_RECORD: Final = Struct("<IIQQI")  # 1 or 0 if cleared, CRC-32 of the rest, epoch, number, bytes of the body
_CLEARED: Final = bytes(4)


@dataclass(slots=True)
class _Region:
    begin: int
    end: int
    """Offset of the next record."""
    epoch: int = 0
    live: dict[int, int] = field(default_factory=dict)
    """Offsets of the records that are not cleared, by number."""


@dataclass(frozen=True, slots=True)
class DeliveryFileReport:
    """State of a file next to a database."""

    path: Path
    cluster: int | None
    """Number of the cluster of this database that uses it; None: it was left by another database."""
    waiting: int
    """Number of deliveries whose events may not be in the log."""


class DeliveryFile:
    """The file of one cluster; ``owner`` identifies database and cluster. Any thread may use it.

    Numbers of deliveries are ``above`` those in the database. All methods raise StoreError.
    """

    def __init__(self, path: Path, owner: str, above: int = 0) -> None:
        self.path = path
        self._owner = owner
        self.above = self._last = above
        self._file: int | None = None
        self._lock = Lock()
        self._regions: tuple[_Region, ...] = ()
        self._current = 0

    def deliveries(self) -> Sequence[tuple[int, bytes]]:
        """Return the stored deliveries in the order of their arrival: number and body."""
        with self._lock:
            try:
                if not self._open():
                    return ()
                found = [one for region in self._regions for one in self._records(region)]
            except OSError as error:
                raise self._translate(error) from error
        return sorted((number, body) for number, live, body in found if live)

    def replace(self, new: Sequence[bytes], logged: Sequence[int]) -> Sequence[int]:
        """Store the bodies of ``new`` deliveries durably and return their numbers; remove those that are
        ``logged``.
        """
        with self._lock:
            try:
                if not self._open():
                    if not new:
                        return ()
                    self._create()
                self._clear(logged)
                return self._append(new) if new else ()
            except OSError as error:
                raise self._translate(error) from error

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _translate(self, error: OSError) -> DatabaseUnavailable | DiskFull:
        kind = DiskFull if isinstance(error, _NoRoom) else DatabaseUnavailable
        return kind(f"{self.path}: {error.strerror or error}")

    def _open(self) -> bool:
        """Open the file and read its records; return False if there is none of this owner."""
        if self._file is not None:
            return True
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            if os.pread(file, _HEADER, 0) != self._header():
                return False
            self._file, file = file, -1
        finally:
            if file >= 0:
                os.close(file)
        self._read_regions()
        return True

    def _header(self) -> bytes:
        line = json.dumps({"format": _FORMAT, "owner": self._owner}).encode()
        return (f"{zlib.crc32(line):08x} ".encode() + line + b"\n").ljust(_HEADER, b"\0")

    def _create(self) -> None:
        """Make the file, with allocated room: a write that needs new blocks waits for the file system."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _write(file, bytes(_HEADER + 2 * _REGION), 0)
            os.fsync(file)
            _write(file, self._header(), 0)
            os.fsync(file)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._file, file = file, -1
        finally:
            if file >= 0:
                os.close(file)
        self._read_regions()

    def _read_regions(self) -> None:
        self._regions = tuple(_Region(begin, begin) for begin in (_HEADER, _HEADER + _REGION))
        for region in self._regions:
            at = region.begin
            for number, live, body in self._records(region):
                if live:
                    region.live[number] = at
                at = region.end = at + _record_size(body)
                self._last = max(self._last, number)
        self._current = max((0, 1), key=lambda which: self._regions[which].epoch)

    def _records(self, region: _Region) -> Iterator[tuple[int, bool, bytes]]:
        """Yield number, whether it is not cleared, and body of each record; set the region's epoch."""
        assert self._file is not None
        data = memoryview(os.pread(self._file, _REGION, region.begin))
        at, epoch = 0, 0
        while at + _RECORD.size <= len(data):
            live, crc, of, number, size = _RECORD.unpack_from(data, at)
            body = data[at + _RECORD.size : at + _RECORD.size + size]
            if not of or (epoch and of != epoch) or len(body) != size or crc != _digest(of, number, body):
                return
            epoch = region.epoch = of
            yield number, bool(live), bytes(body)
            at += _record_size(body)

    def _clear(self, numbers: Sequence[int]) -> None:
        assert self._file is not None
        for number in numbers:
            for region in self._regions:
                at = region.live.pop(number, None)
                if at is not None:
                    _write(self._file, _CLEARED, at)

    def _append(self, bodies: Sequence[bytes]) -> Sequence[int]:
        assert self._file is not None
        size = sum(_record_size(body) for body in bodies)
        region, at, epoch = self._choose_place(size)
        numbers = range(self._last + 1, self._last + 1 + len(bodies))
        offsets: list[int] = []
        data = bytearray(size)
        place = 0
        for number, body in zip(numbers, bodies, strict=True):
            _RECORD.pack_into(data, place, 1, _digest(epoch, number, body), epoch, number, len(body))
            data[place + _RECORD.size : place + _RECORD.size + len(body)] = body
            offsets.append(at + place)
            place += _record_size(body)
        _write(self._file, data, at, os.RWF_DSYNC)
        region.epoch, region.end = epoch, at + size
        region.live.update(zip(numbers, offsets, strict=True))
        self._current = self._regions.index(region)
        self._last = numbers[-1]
        return numbers

    def _choose_place(self, size: int) -> tuple[_Region, int, int]:
        """Return region, offset and epoch for records of this size. Raises _NoRoom."""
        current, other = self._regions[self._current], self._regions[1 - self._current]
        if current.live and current.end + size <= current.begin + _REGION:
            return current, current.end, current.epoch
        free = next((region for region in (current, other) if not region.live), None)
        if free is None or size > _REGION:
            raise _NoRoom("no room until earlier deliveries are handled")
        return free, free.begin, max(current.epoch, other.epoch) + 1


def path_of(database: Path, cluster: str) -> Path:
    """Return the path of a cluster's file next to a SQLite database."""
    return database.with_name(f"{database.name}.{cluster}{_ENDING}")


def owner_of(cluster: str, created: int) -> str:
    """Return the owner of a file: the cluster that this database has since ``created``."""
    return f"{cluster} {created}"


def find_files(database: Path) -> Sequence[Path]:
    """Return the paths of all such files next to a SQLite database."""
    return sorted(database.parent.glob(f"{glob.escape(database.name)}.*{_ENDING}"))


def read_owner(path: Path) -> str:
    """Return the owner that the header names; empty if the creation of the file was interrupted. Raises
    StoreError.
    """
    try:
        with path.open("rb") as file:
            line = file.read(_HEADER).partition(b"\n")[0].partition(b" ")[2]
    except OSError as error:
        raise DatabaseUnavailable(f"{path}: {error.strerror or error}") from error
    try:
        return str(json.loads(line)["owner"])
    except (ValueError, KeyError, TypeError):
        return ""


def count_deliveries(path: Path, owner: str) -> int:
    """Return the number of stored deliveries; nothing is changed. Raises StoreError for a file that this
    process may not read and write.
    """
    file = DeliveryFile(path, owner)
    try:
        return len(file.deliveries())
    finally:
        file.close()


class _NoRoom(OSError):
    """Both regions have deliveries that are not handled yet."""


def _digest(epoch: int, number: int, body: bytes | memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(b"%d %d %d" % (epoch, number, len(body))))


def _record_size(body: bytes | memoryview) -> int:
    return -(-(_RECORD.size + len(body)) // _SECTOR) * _SECTOR


def _write(file: int, data: bytes | bytearray, at: int, flags: int = 0) -> None:
    if os.pwritev(file, (data,), at, flags) != len(data):
        raise OSError("a write was cut short")
