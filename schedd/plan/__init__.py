"""The schedule: timelines of nodes and pools, gap search, repair, views. No I/O, no clock."""
