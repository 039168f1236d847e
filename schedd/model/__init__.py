"""Frozen value types of the field: jobs, requests, nodes, placements, answers. No I/O, no clock."""

from schedd.model.answer import Answer, Never, StartKnown, WaitingFor
from schedd.model.job import Job, JobState
from schedd.model.node import Node, NodeState
from schedd.model.placement import Placement, Reservation, Share
from schedd.model.request import Chunk, Features, NodeSets, Place, Request, matches
from schedd.model.time import FOREVER

__all__ = [
    "FOREVER",
    "Answer",
    "Chunk",
    "Features",
    "Job",
    "JobState",
    "Never",
    "Node",
    "NodeSets",
    "NodeState",
    "Place",
    "Placement",
    "Request",
    "Reservation",
    "Share",
    "StartKnown",
    "WaitingFor",
    "matches",
]
