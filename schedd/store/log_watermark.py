"""A file outside the database with the end of the event log; it reveals that the database lost its end.

The file has two slots that are written in turn, each a line with its CRC-32, so that a torn write leaves the
other slot intact. It is not synced with each batch: after a power failure it may be behind the log, which is
harmless. It is ahead of the log only if the log lost something.
"""

import json
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import structlog

_log = structlog.get_logger(__name__)
_SLOT: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWatermark:
    """The last stored batch and its last event; the digest of the log (hex) up to ``chain_batch``; the
    number of the last decision, the leader's term, and the number of writes of this file.
    """

    batch: int = 0
    event: int = 0
    chain_batch: int = 0
    chain: str = ""
    last_decision: int = 0
    term: int = 0
    count: int = 0


class LogWatermarkFile:
    """The watermark file of one cluster. A failed write is logged and has no other effect."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._count = self.read().count
        self._failed = False

    def read(self) -> LogWatermark:
        """Return the newest valid slot; a zero watermark if there is none."""
        found = LogWatermark()
        with suppress(OSError):
            data = self.path.read_bytes()
            for at in (0, _SLOT):
                slot = _slot(data[at : at + _SLOT])
                if slot is not None and slot.count > found.count:
                    found = slot
        return found

    def write(self, marked: LogWatermark) -> None:
        """Write the watermark to the older slot."""
        self._count += 1
        line = json.dumps({**asdict(marked), "count": self._count}, separators=(",", ":")).encode()
        slot = f"{zlib.crc32(line):08x} ".encode() + line
        self._do(lambda file: os.pwrite(file, slot.ljust(_SLOT - 1) + b"\n", self._count % 2 * _SLOT))

    def sync(self) -> None:
        self._do(os.fdatasync)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _do(self, work: Callable[[int], object]) -> None:
        try:
            if self._file is None:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            work(self._file)
        except OSError as error:
            if not self._failed:
                _log.error(
                    "the watermark of the log cannot be written: a lost end of the log would go unnoticed",
                    file=str(self.path),
                    why=error.strerror or str(error),
                )
            self._failed = True
        else:
            self._failed = False


def _slot(data: bytes) -> LogWatermark | None:
    crc, _, line = data.rstrip().partition(b" ")
    try:
        if int(crc, 16) != zlib.crc32(line):
            return None
        return LogWatermark(**json.loads(line))
    except (ValueError, TypeError):
        return None
