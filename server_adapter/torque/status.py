"""Incremental decoding of status replies: whole objects by chunk, with only the wanted attributes."""

from collections.abc import Collection, Iterator

from server_adapter.batch.replies import Reply, ReplyChoice
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.dis import (
    DEFAULT_LIMITS,
    Decoder,
    DisIncompleteError,
    Limits,
    is_plain,
    shared_scanner,
)
from server_adapter.torque.replies import decode_reply, decode_reply_head


class TorqueStatusDecoder:
    """Decodes one reply from chunks and returns its objects.

    The work per `feed` is proportional to the chunk: a caller that feeds 64 KiB at a time and lets its event
    loop run in between never blocks the loop for more than a few milliseconds. An object cut by the end of a
    chunk waits for the rest. `done`: the reply is complete; `rest` then has the bytes after it, and `reply`
    the reply if it is not a status (usually an error).
    """

    def __init__(self, wanted: Collection[str] | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self._scanner = shared_scanner(None if wanted is None else frozenset(wanted), limits)
        self._limits = limits
        self._buffer = b""
        self._missing = 1  # number of bytes needed before the next try
        self._remaining: int | None = None
        self.done = False
        self.reply: Reply | None = None

    @property
    def rest(self) -> bytes:
        """Bytes behind the end of the reply."""
        return self._buffer if self.done else b""

    def feed(self, chunk: bytes) -> list[DescribedObject]:
        """Return the objects completed by this chunk. Raises `DisError` for bytes that are not a reply."""
        self._buffer += chunk
        if self.done or len(self._buffer) < self._missing:
            return []
        position = 0
        objects: list[DescribedObject] = []
        try:
            if self._remaining is None:
                position = self._begin()
            if self._remaining is not None:
                for item, end in self._objects(position):
                    objects.append(item)
                    position = end
                self.done = self._remaining == 0
            self._missing = 1
        except DisIncompleteError as error:
            self._missing = error.needed - position
        self._buffer = self._buffer[position:]
        return objects

    def _begin(self) -> int:
        decoder = Decoder(self._buffer, 0, self._limits)
        if decode_reply_head(decoder)[3] is not ReplyChoice.STATUS:
            decoder.position = 0
            self.reply = decode_reply(decoder)
            self.done = True
        else:
            self._remaining = decoder.count()
        return decoder.position

    def _objects(self, position: int) -> Iterator[tuple[DescribedObject, int]]:
        data = self._buffer
        text = data.decode("latin-1")
        plain = is_plain(text)
        scan = self._scanner.scan
        decoder = Decoder(data, position, self._limits)
        assert self._remaining is not None
        while self._remaining:
            object_type = decoder.unsigned()
            name = decoder.string()
            values, position = scan(data, text, decoder.position, plain=plain)
            decoder.position = position
            self._remaining -= 1
            yield DescribedObject(object_type, name, values), position
