"""Bookings: cores for a period within a window, at any cluster that has them."""
