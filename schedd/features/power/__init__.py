"""Power saving: idle nodes are switched off, and on again ahead of the job that needs them."""
