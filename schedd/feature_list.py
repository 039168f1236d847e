"""The list of features. Each is a folder of ``schedd/features``.

Each layer loads its part of a feature by name, where the feature has one: the engine the module
``component``, the daemon ``background`` and (by settings of the whole daemon) ``daemon``, its first start
``earlier``, its compilation of kernels ``warmup``, the metrics ``metrics``, the HTTP API ``api``, the
dashboard ``page`` and ``calendar``. Deleting a folder and its entry here removes the feature; the features
that need it go with it.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final, NamedTuple


class Feature(NamedTuple):
    """A feature: the name of its folder; and its commands, each with the module that has it and a summary."""

    name: str
    commands: Mapping[str, tuple[str, str]]
    needs: tuple[str, ...] = ()  # earlier features of the list without which it does not work


FEATURES: Final = (
    Feature("periods", {}),
    Feature("qos", {}),
    Feature("fair_share", {"fair-share": ("command", "Show target and received shares.")}),
    Feature("prediction", {}),
    Feature("formula", {}),
    Feature("reservations", {"reservation": ("command", "Show, create or remove reservations.")}),
    Feature("node_trials", {}),
    Feature("refused_cores", {}),
    Feature("accounts", {"account": ("command", "Show accounts and charges; create accounts.")}),
    Feature("deadlines", {}),
    Feature("deadline_forecasts", {}, ("prediction", "deadlines")),
    Feature("limits", {}),
    Feature("partitions", {"partitions": ("command", "Show the partitions, their free capacity and jobs.")}),
    Feature("moldable", {}),
    Feature("normalised_walltimes", {}),
    Feature("node_choice", {}),
    Feature("licences", {}),
    Feature("power", {"power": ("command", "Show or switch the power of nodes.")}),
    Feature("prices", {}),
    Feature("transfers", {}),
    Feature("preemption", {}),
    Feature("walltime_extensions", {}),
    Feature("bookings", {"book": ("command", "Book cores for a time within a window.")}, ("transfers",)),
    Feature("notices", {"notify": ("command", "Get a notice when a start moves or is near.")}),
    Feature("alternatives", {"alternatives": ("command", "Search for alternative plans, and apply one.")}),
    Feature("portal", {}),
)
"""In the engine's order of calls to their components."""


@cache
def feature_modules(part: str) -> tuple[ModuleType, ...]:
    """The modules of this name of all features that have one. Pages and scrapes of metrics ask each time."""
    names = [f"schedd.features.{feature.name}.{part}" for feature in FEATURES]
    return tuple(import_module(name) for name in names if find_spec(name) is not None)


def feature_folders(part: str) -> list[str]:
    """The paths of the folders of this name in all features; some may not exist."""
    features = __file__.rpartition("/")[0] + "/features"
    return [f"{features}/{feature.name}/{part}" for feature in FEATURES]


def feature_commands() -> dict[str, tuple[str, str]]:
    """By command: the module that has it, and a summary."""
    return {
        command: (f"schedd.features.{feature.name}.{module}", summary)
        for feature in FEATURES
        for command, (module, summary) in feature.commands.items()
    }
