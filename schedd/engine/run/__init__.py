"""Life of a job in the engine: arrival, dispatch, run, end, re-evaluation, and its server attributes."""
