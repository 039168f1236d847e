"""``schedd experiment``: studies of policies, each a page, its figures and a picture."""
