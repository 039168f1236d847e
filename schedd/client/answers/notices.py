"""Notices: mail or commands that users asked for.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import Literal, TypedDict

__all__ = ["NoticeView", "NoticesView"]


class NoticeView(TypedDict):
    """A notice of a user."""

    number: int
    job: str
    moved: int | None
    ahead: int | None
    lost: bool
    way: Literal["mail", "command"]
    to: str
    since: int


class NoticesView(TypedDict):
    """All notices of the caller, and the ways of notifying that the site offers."""

    notices: list[NoticeView]
    domains: list[str]
    commands: list[str]
