"""What readers get of the state."""
