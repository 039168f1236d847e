r"""Text from the server's bytes, in a form that every other program accepts, and back.

A server sends bytes, mostly ASCII or UTF-8, without validation: a job may be named `job` and the byte FF.
Such a byte becomes the four characters `\xff`, and these become the byte again when they are sent, so the
round trip is exact. NUL is treated the same, since databases do not accept it. Backslashes before text of
this form are doubled, so a name with the actual characters `\xff` keeps them; all other backslashes
(`DOMAIN\alice`) are kept. The text is valid Unicode without surrogates, so JSON, SQL, logs and pages need no
further rule.
"""

import re
from typing import Final

_LOOK: Final = r"x(?:00|[89a-f][0-9a-f])"
_RUN: Final = r"(?<!\\)(\\{}+)"  # possessive, and from its beginning: the work is linear for any input
_TO_ESCAPE: Final = re.compile(rf"{_RUN.format('+')}({_LOOK})|{_RUN.format('*')}([\0\udc80-\udcff])")
_ESCAPED: Final = re.compile(rf"{_RUN.format('+')}({_LOOK})")


def is_plain(text: str) -> bool:
    """Return whether bytes, given as their latin-1 text, are the same characters as text."""
    return text.isascii() and "\\x" not in text and "\0" not in text


def decode_text(raw: bytes) -> str:
    """Convert bytes to text; different bytes give different texts."""
    text = raw.decode("utf-8", "surrogateescape")
    return text if is_plain(text) else _TO_ESCAPE.sub(_escape, text)


def encode_text(text: str) -> bytes:
    """Return the bytes that `decode_text` maps to this text; else its UTF-8, with `?` for a surrogate."""
    raw = text.encode("utf-8", "replace")
    if "\\x" not in text:
        return raw
    return _ESCAPED.sub(_unescape, raw.decode()).encode("utf-8", "surrogateescape")


def _escape(found: re.Match[str]) -> str:
    if found[2] is not None:  # characters that look like an escape
        return 2 * found[1] + found[2]
    return 2 * found[3] + f"\\x{ord(found[4]) & 0xFF:02x}"


def _unescape(found: re.Match[str]) -> str:
    slashes, digits = found[1], found[2]
    half = "\\" * (len(slashes) // 2)
    if len(slashes) % 2 == 0:
        return half + digits
    byte = int(digits[1:], 16)
    return half + (chr(0xDC00 + byte) if byte else "\0")
