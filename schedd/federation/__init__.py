"""Several schedds under one roof: jobs are routed to the cluster whose plan ends them first.

It speaks with the schedds over their public HTTP interface alone.
"""
