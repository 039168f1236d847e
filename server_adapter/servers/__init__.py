"""The families of servers behind the bridge's interface; each imports only its own wire package."""
