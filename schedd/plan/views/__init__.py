"""What can be read off a plan: all windows for a request, what blocks a job, why a request can never run."""

from schedd.plan.views.blockers import Blockers, Hold, Item, blockers
from schedd.plan.views.never import bare, why_never
from schedd.plan.views.windows import Window, windows

__all__ = ["Blockers", "Hold", "Item", "Window", "bare", "blockers", "why_never", "windows"]
