"""Decoding of status replies, which arrive in parts of some hundred objects."""

from collections.abc import Collection

from server_adapter.batch.replies import Reply, ReplyChoice
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.dis import DEFAULT_LIMITS, Decoder, Limits, is_plain, shared_scanner
from server_adapter.openpbs.replies import decode_reply, decode_reply_head


class OpenPBSStatusDecoder:
    """Decodes one reply from its packets and returns its objects.

    `done`: the reply is complete; `reply` is the reply if it is not a status (usually an error).
    """

    def __init__(self, wanted: Collection[str] | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self._scanner = shared_scanner(None if wanted is None else frozenset(wanted), limits)
        self._limits = limits
        self.done = False
        self.reply: Reply | None = None

    def feed(self, body: bytes) -> list[DescribedObject]:
        """Return the objects of one packet. Raises `DisError` for bytes that are not a reply."""
        decoder = Decoder(body, 0, self._limits)
        head = decode_reply_head(decoder)
        self.done = not head.more
        if head.choice is not ReplyChoice.STATUS:
            self.reply = decode_reply(body)
            self.done = True
            return []
        text = body.decode("latin-1")
        scan, plain = self._scanner.scan, is_plain(text)
        objects = []
        for _ in range(decoder.count()):
            object_type, name = decoder.unsigned(), decoder.string()
            values, decoder.position = scan(body, text, decoder.position, plain=plain)
            objects.append(DescribedObject(object_type, name, values))
        return objects
