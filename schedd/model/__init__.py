"""Frozen value types of the field: jobs, requests, nodes, placements, answers. No I/O, no clock."""

from schedd.model.answer import Answer, Never, StartKnown, WaitingFor
from schedd.model.node import Node, NodeState
from schedd.model.placement import Placement, Share
from schedd.model.request import Chunk, Features, NodeSets, Place, Request, matches
from schedd.model.time import FOREVER

__all__ = [
    "FOREVER",
    "Answer",
    "Chunk",
    "Features",
    "Never",
    "Node",
    "NodeSets",
    "NodeState",
    "Place",
    "Placement",
    "Request",
    "Share",
    "StartKnown",
    "WaitingFor",
    "matches",
]
