"""Jobs and the choice of their cluster: attempts, decisions and moves as pure functions over events."""
