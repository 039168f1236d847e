"""Users' commands for a federation, with the standard library only."""
