"""What can be read off a plan: its gaps, all windows for a request, why a request can never run."""

from schedd.plan.views.gaps import Gap, Step, free_over_time, gaps
from schedd.plan.views.never import bare, why_never
from schedd.plan.views.windows import Window, windows

__all__ = ["Gap", "Step", "Window", "bare", "free_over_time", "gaps", "why_never", "windows"]
