"""Predicted run times and expected starts of jobs, learned from the outcomes of earlier jobs."""
