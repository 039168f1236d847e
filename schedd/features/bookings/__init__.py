"""Bookings: cores that a user has for a time, within a window of his choice."""
