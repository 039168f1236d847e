"""Federation state under one lock: the applied event log and the last known state of each cluster."""
