"""How many examples a property test tries."""

import os
from typing import Final

__all__ = ["examples"]

_SHARE_OF_SHORT_RUN: Final = 0.2


def examples(full: int) -> int:
    """Return ``full``, or a fifth of it in the short run, which has no HYPOTHESIS_PROFILE."""
    if os.environ.get("HYPOTHESIS_PROFILE", "schedd") != "schedd":
        return full
    return max(1, round(_SHARE_OF_SHORT_RUN * full))
