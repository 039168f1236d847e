"""MUNGE: authenticates users of other hosts with a key that the hosts share.

Uses libmunge (munge.h, from MUNGE 0.5), loaded on first use.
"""

import ctypes
import ctypes.util
import threading
from pathlib import Path
from typing import Any, Final

PAYLOAD: Final = b"schedd"
"""Required payload of a credential (``munge -s schedd``); credentials for other services are refused."""
_OPT_SOCKET: Final = 8
_LOCK: Final = threading.Lock()
_loaded: list[tuple[Any, Any]] = []


class MungeError(Exception):
    """An invalid credential, or MUNGE is unavailable; the message gives the reason.

    ``ours``: the reason is on this host: no library, or no munged.
    """

    def __init__(self, words: str, *, ours: bool = False) -> None:
        super().__init__(words)
        self.ours = ours


def decode(credential: str, socket: Path | None = None) -> int:
    """Return the uid of the creator of ``credential``, which is valid once.

    ``socket`` is munged's; None: the default. Blocks. Raises MungeError.
    """
    munge, libc = _libraries()
    context = munge.munge_ctx_create()
    if not context:
        raise MungeError("libmunge has no memory left", ours=True)
    payload, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint(), ctypes.c_uint()
    try:
        if socket is not None:
            munge.munge_ctx_set(ctypes.c_void_p(context), _OPT_SOCKET, str(socket).encode())
        error = munge.munge_decode(
            credential.encode("ascii", "replace"),
            ctypes.c_void_p(context),
            *map(ctypes.byref, (payload, length, uid, gid)),
        )
        carried = ctypes.string_at(payload.value, length.value) if payload.value else b""
        if error:
            # 1: an internal error; 5, 6, 7: no memory, no daemon, no answer
            words = munge.munge_strerror(error).decode("ascii", "replace")
            raise MungeError(words, ours=error in (1, 5, 6, 7))
        if carried != PAYLOAD:
            raise MungeError("the credential was made for another service")
        return uid.value
    finally:
        if payload.value:
            libc.free(payload)
        munge.munge_ctx_destroy(ctypes.c_void_p(context))


def _libraries() -> tuple[Any, Any]:
    with _LOCK:
        if not _loaded:
            try:
                munge = ctypes.CDLL(ctypes.util.find_library("munge") or "libmunge.so.2")
            except OSError as error:
                raise MungeError(f"libmunge cannot be loaded: {error}", ours=True) from None
            munge.munge_ctx_create.restype = ctypes.c_void_p
            munge.munge_strerror.restype = ctypes.c_char_p
            _loaded.append((munge, ctypes.CDLL(None)))
        return _loaded[0]
