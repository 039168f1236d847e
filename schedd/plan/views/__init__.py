"""What can be read off a plan: all windows for a request, what blocks a job, why a request can never run."""

from schedd.plan.views.blockers import Blockers, Hold, Item, blockers
from schedd.plan.views.chain import Stretch, chain
from schedd.plan.views.never import bare, why_never
from schedd.plan.views.windows import Window, windows

__all__ = [
    "Blockers",
    "Hold",
    "Item",
    "Stretch",
    "Window",
    "bare",
    "blockers",
    "chain",
    "why_never",
    "windows",
]
