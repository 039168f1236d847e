"""TORQUE's batch protocol: requests, replies, a connection, the scheduler's port (protocol document)."""
