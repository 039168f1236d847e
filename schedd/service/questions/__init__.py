"""Questions about a plan, answered on copies: what if, why not sooner, when, at what cost."""
