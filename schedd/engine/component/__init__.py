"""The component protocol: what a feature adds to the engine.

A feature's folder has a module ``component``, which declares a ``Component`` with the name ``COMPONENT``.
The engine calls components at fixed points, in the order of ``schedd/feature_list.py``, and knows none by
name. An error in a component follows the same rules as one in the engine: see ``recovery.py``.
"""
