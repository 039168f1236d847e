"""Admission by probability: deadlines that are accepted if the forecast of the job's end is good enough."""
