"""What jobs run on: nodes, their power, reservations and bookings of them."""
