"""The commands for users: in the standard library alone, so that they answer at once."""
