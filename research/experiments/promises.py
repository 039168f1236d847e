"""Policy of a site for studies without promises."""

from typing import Final

NO_ADMISSION: Final = {"deadlines": {"admission": False}}
"""No deadline is accepted. An accepted one is a promise, which binds placements, searches and alternative
plans, whatever the slack.
"""
