"""The service layer around the engine: threads, clock, queues, decision log, settings. No HTTP."""
