"""What the engine keeps of deadlines: accepted ones, refused ones, and their outcomes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import index
from typing import Final

from schedd.engine.facts.state import EngineState
from schedd.features.deadlines.settings import DeadlineSettings
from schedd.plan.schema import MOMENT, NAMES, NUMBER, SHARED, FieldRule, declared

OUTCOMES: Final = ("accepted", "refused", "kept", "missed")
"""Counted outcomes: of requests for admission, and of accepted deadlines when their jobs ended."""


@dataclass(frozen=True, slots=True)
class AcceptedDeadline:
    """An accepted deadline, when it was accepted, and the start that was promised without it (FOREVER: none);
    all in seconds since the epoch.
    """

    deadline: int
    time: int
    promised_before: int


_ACCEPTED: Final = FieldRule(
    dict,
    lambda found: {job: asdict(one) for job, one in found.items()},
    lambda saved: {job: AcceptedDeadline(**one) for job, one in saved.items()},
)

_COUNTS: Final = FieldRule(
    dict, load=lambda saved: {outcome: index(number) for outcome, number in saved.items()}
)


@dataclass(slots=True)
class DeadlinesState:
    """The component's part of the engine's state."""

    accepted: dict[str, AcceptedDeadline] = declared(_ACCEPTED, make=dict, carried=True, lasting=True)
    """By job."""
    refused: dict[str, int] = declared(NAMES, make=dict, carried=True)
    """By job: the refused deadline. It is accepted as soon as the plan meets it."""
    counts: dict[str, int] = declared(_COUNTS, make=dict, carried=True, lasting=True)
    """Number of deadlines by outcome, since the first start of the engine."""
    policy_changed: bool = declared(NUMBER, default=False, carried=True)
    """The deadlines of waiting jobs are to be judged under another policy of the site."""
    holds_lost: bool = declared(SHARED, default=False, carried=True)
    """Whether the site holds jobs that can no longer end by their deadlines."""
    examined: int | None = declared(MOMENT, default=None)
    """Generation of the last examination of moved jobs; None: none was."""
    published: "PublishedDeadlines | None" = declared(MOMENT, default=None)
    """The value for readers; None: something was changed."""


@dataclass(frozen=True, slots=True)
class PublishedDeadlines:
    """What other threads may read of the component."""

    settings: DeadlineSettings
    accepted: Mapping[str, AcceptedDeadline]
    refused: Mapping[str, int]
    counts: Mapping[str, int]


def deadlines_state(state: EngineState) -> DeadlinesState:
    """The component's part of the engine's state."""
    return state.part(DeadlinesState)


def publish_deadlines(state: EngineState) -> PublishedDeadlines:
    """A value for other threads."""
    part, settings = deadlines_state(state), state.site.part(DeadlineSettings)
    if part.published is None or part.published.settings is not settings:
        part.published = PublishedDeadlines(
            settings, dict(part.accepted), dict(part.refused), dict(part.counts)
        )
    return part.published
