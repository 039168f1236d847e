"""Texts of exceptions in messages for people."""

import pytest

from schedd.api.self_probe import ProbeFailed
from schedd.error_text import describe_error


class ReadTimeout(Exception):
    """Like the exception of an HTTP client, which has no text."""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProbeFailed("no answer within 15.0 s"), "no answer within 15.0 s"),
        (FileNotFoundError(2, "No such file or directory", "/etc/x"), "/etc/x: No such file or directory"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError(), "no answer in time"),
        (ReadTimeout(), "no answer in time"),
        (MemoryError(), "no memory is left"),
        (KeyError("x"), "internal error KeyError: 'x'"),
        (AssertionError(), "internal error AssertionError"),
        (ValueError("12 is no amount"), "12 is no amount"),
    ],
)
def test_text_of_an_exception_is_the_reason_in_words(error: BaseException, text: str) -> None:
    assert describe_error(error) == text
