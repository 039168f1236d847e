"""Several schedds under one federation: jobs are routed to the cluster whose plan ends them first.

It speaks with the schedds over their public HTTP interface alone. ``routing``, ``groups``, ``bags`` and
``licences`` are the core, functions over events; ``log`` keeps the events; ``federation`` is the state under
one lock; ``threads`` do what follows from it at the clusters.
"""
