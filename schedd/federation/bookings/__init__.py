"""Bookings: cores for a time, at whichever cluster has them within the window that was asked for."""
