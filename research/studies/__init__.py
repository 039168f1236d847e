"""Experiments about policies: each writes a page, its figures and a picture."""
