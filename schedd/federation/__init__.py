"""Several schedds under one roof: jobs are routed to the cluster whose plan ends them first.

It speaks with the schedds over their public HTTP interface alone. ``routing``, ``groups``, ``bags`` and
``licences`` are the core, functions over events; ``log`` keeps the events; ``roof`` is the state under one
lock; ``threads`` do what follows from it at the clusters.
"""
