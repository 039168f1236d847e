"""Incident files: lines of JSON that reproduce a failure.

The first line has the format and the checkpoint; one line per batch follows. The log is bounded: if its
oldest batches are lost, the file can be read but not run.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from schedd.engine.engine import Engine
from schedd.engine.log import Incident, LoggedBatch
from schedd.wire import Decision, Event

FORMAT: Final = 1
_EVENTS: Final[TypeAdapter[tuple[Event, ...]]] = TypeAdapter(
    tuple[Annotated[Event, Field(discriminator="type")], ...]
)


class IncidentError(ValueError):
    """A file that is not an incident, or that cannot be run; the message says which line and why."""


def dump_incident(incident: Incident) -> Iterator[str]:
    """The lines of a file that ``read_incident`` reads, without their ends."""
    packed = base64.b64encode(zlib.compress(incident.checkpoint, 1)).decode()
    yield json.dumps(
        {
            "schedd_incident": FORMAT,
            "batches": len(incident.batches),
            "decided": incident.decided,
            "lost": incident.lost,
            "checkpoint": packed,
        }
    )
    for batch in incident.batches:
        line = {"now": batch.now, "decided": batch.decided, "paused": batch.paused}
        yield json.dumps({**line, "events": json.loads(_EVENTS.dump_json(batch.events))})


def read_incident(lines: Iterable[str]) -> Incident:
    """The incident of these lines. Raises IncidentError."""
    numbered = enumerate(lines, 1)
    number, text = next(numbered, (1, ""))
    try:
        header: dict[str, Any] = json.loads(text)
        if header["schedd_incident"] != FORMAT:
            raise IncidentError(
                f"line 1: format {header['schedd_incident']}, but this program reads {FORMAT}"
            )
        checkpoint = zlib.decompress(base64.b64decode(header["checkpoint"], validate=True))
        batches = []
        for number, text in numbered:  # noqa: B007  (the error message contains it)
            line = json.loads(text)
            events = _EVENTS.validate_python(line["events"])
            batches.append(LoggedBatch(line["now"], events, line["paused"], line["decided"]))
    except IncidentError:
        raise
    except (KeyError, TypeError, ValueError, ValidationError, zlib.error) as error:
        raise IncidentError(f"line {number}: this is no incident of schedd: {error}") from error
    if len(batches) != header["batches"]:
        raise IncidentError(f"{header['batches']} batches were written, {len(batches)} are here")
    return Incident(checkpoint, tuple(batches), header["decided"], header["lost"])


def rerun_incident(checkpoint: bytes, batches: Sequence[LoggedBatch]) -> Iterator[tuple[Decision, ...]]:
    """Run ``batches`` again from ``checkpoint``: the decisions of each. Raises CheckpointError.

    Raises IncidentError where the engine has not made as many decisions as it had when it was logged: then
    batches are missing, or this is not the program that wrote them.
    """
    engine = Engine.restore(checkpoint)
    for number, batch in enumerate(batches, 1):
        made = engine.state.decision_number
        if made != batch.decided:
            raise IncidentError(f"batch {number}: {batch.decided} decisions were made before it, now {made}")
        if batch.paused is None:
            yield engine.handle(batch.events, batch.now).decisions
        elif batch.paused:
            engine.pause(batch.paused)
            yield ()
        else:
            engine.resume()
            yield ()
