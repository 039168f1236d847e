"""Times on the command line, in the time zone of the user's host."""

from schedd.client import ClientError
from schedd.time_words import parse_future_time, parse_moment


def parse_time(text: str, now: int) -> int:
    """A moment as people write it. Raises ClientError."""
    try:
        return parse_moment(text, now)
    except ValueError as error:
        raise ClientError(str(error)) from None


def parse_coming_time(text: str, now: int) -> int:
    """A moment as ``parse_time`` reads it, or a future one as people say it. Raises ClientError."""
    try:
        return parse_moment(text, now)
    except ValueError:
        return parse_future_argument(text, now)


def parse_future_argument(text: str, now: int) -> int:
    """A future moment as people say it. Raises ClientError."""
    try:
        return parse_future_time(text, now)
    except ValueError as error:
        raise ClientError(str(error)) from None
