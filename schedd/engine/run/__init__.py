"""Life of a job in the engine: arrival, dispatch, run, end, re-evaluation, and its attributes on the server."""
