"""Moldable jobs: the plan chooses their walltime within a range, or one of their alternatives."""
