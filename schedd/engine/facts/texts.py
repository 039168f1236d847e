"""Texts of the engine in alerts, explanations and recorded causes that other texts repeat."""

from typing import Final

LIMIT_TO_BE_RAISED: Final = "a limit to be raised"
NOT_ANNOUNCED: Final = "started, but no event had announced it"
REQUEST_ENLARGED: Final = "its request was enlarged"
RUNS_PAST_WALLTIME: Final = "runs past its walltime"
STARTED_BY_SOMEBODY_ELSE: Final = "was started by somebody else"
