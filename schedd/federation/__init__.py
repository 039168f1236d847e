"""Federation of several schedds: a job goes to the cluster with the earliest planned end.

The federation talks to its member clusters only over their public HTTP interface. ``items`` is the state that
jobs, co-allocations, bags and bookings share, built from ``events``. ``routing``, ``coallocation``, ``bags``,
``bookings`` and ``licences`` hold the decisions as pure functions over events. ``event_log`` stores the
events, ``state`` applies them under one lock, and ``workers`` carry out the resulting requests at the
clusters.
"""
