"""The families of servers behind the bridge's one interface; each knows its own wire package alone."""
