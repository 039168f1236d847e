"""Open alerts: conditions that an admin must know about.

An alert with a lasting cause closes when the cause is gone; an alert about a single event closes after a
while without another such event.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

from schedd.engine.component.registry import components
from schedd.wire.adapter_troubles import ADAPTER_TROUBLES, NO_CONTACT

FADES: Final = 900  # seconds after which an alert about a single event closes

_KINDS: Final[Mapping[str, str]] = {
    "adapter": NO_CONTACT,
    "adapter_work": ADAPTER_TROUBLES["adapter_work"],
    "background": "background work of the daemon failed and was started again",
    "black_hole": "jobs fail on a node soon after they start; it gets no new jobs",
    "bookkeeping": "a start or end was handled, but not all of it could be noted, such as a charge",
    "by_hand": "a job was started by hand or by an unknown program; the plan takes it into account",
    "calls": "the server does not call its scheduler; starts wait for the next poll",
    "clock": "the clocks of daemon, adapter and server differ, or one was set",
    "database": "the database is unavailable",
    "error": "an event could not be handled",
    "failing_together": "jobs fail soon after they start on several nodes at once; no node is closed for it",
    "feature": "events of a feature that is not installed are ignored",
    "foreign": "another scheduler starts jobs; schedd starts no more",
    "log": "a part of the event log was lost; the plan continues from the server's state",
    "lost_run": "the server lists a job as running that none of its nodes has; it holds no cores in the plan",
    "mode": "the adapter is configured to start jobs, but the cluster's mode forbids it",
    "no_room": "a job is due where running jobs hold more than the plan says; it waits",
    "node": "a node has more kinds of resources than the plan can count",
    "notices": "mail to users, or a command that sends them notices, fails",
    "nodes_down": "nodes are down that no administrator holds",
    "overrun": "a job runs far past its walltime; its nodes count as blocked",
    "batch_skipped": "a batch of events could not be handled and was skipped",
    "planner": "the planner stopped, or one of its side tasks fails",
    "policy": "a policy was rejected",
    "promises": "changed settings put promises at risk at a reload; they took effect",
    "registration": ADAPTER_TROUBLES["registration"],
    "quarantine": "a job that made the planner fail is set aside",
    "resource": "the server does not tell the type of a resource; it is read by the look of its values",
    "server": "the adapter cannot reach the server",
    "settings": "changed settings were rejected at a reload; the previous ones stay in force",
    "snapshot": "a snapshot of the server was rejected, or showed changes that no event had announced",
    "stuck_vnodes": ADAPTER_TROUBLES["stuck_vnodes"],
    "starts_refused": "the server or the adapter refuses all starts",
    "unanswered": "starts were sent to the adapter and not answered in time",
    "unknown_job": "a job started that no event had announced",
    "webhook": "a webhook cannot be reached; its changes wait",
    "writing": ADAPTER_TROUBLES["writing"],
}
"""Alert kinds of the engine and the daemon, with their meanings."""


def alert_kinds() -> dict[str, str]:
    of_components = {name: kind.text for one in components() for name, kind in one.alerts.items()}
    return dict(sorted(({**_KINDS, **of_components}).items()))


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An alert that is not over yet. Times are seconds since the epoch (UTC)."""

    kind: str
    about: str
    """The node, job, licence, reservation, transfer or type of event that it is about; empty: the cluster."""
    text: str
    since: int
    """When it was first raised."""
    last: int
    """When it was last raised."""
    times: int = 1
    """How often it was raised since then."""
    until: int | None = None
    """When it is over unless it is raised again; null: when its cause is gone."""


def _in_quarantine(state: "EngineState", about: str) -> bool:
    record = state.records.get(about)
    # A running job is not quarantined; a failure caused by it may repeat while it runs.
    return record is not None and (bool(record.quarantine) or record.run.started >= 0)


_LASTS: Final[Mapping[str, Callable[["EngineState", str], bool]]] = {
    "black_hole": lambda state, about: about in state.black_holes,
    "foreign": lambda state, _: bool(state.foreign),
    "resource": lambda _state, _: True,  # until the types are read again
    "lost_run": lambda state, about: about in state.records and state.records[about].facts.run_lost,
    "mode": lambda state, _: state.adapter_mode == "scheduler" != state.settings.mode,
    "overrun": lambda state, about: any(about in jobs for jobs in state.blocked.values()),
    "quarantine": _in_quarantine,
    "starts_refused": lambda state, _: bool(state.starts_refused),
    "snapshot": lambda state, about: bool(state.stale) and not about,
}
"""Whether the cause is still there."""
_MOMENTS: Final = frozenset({("snapshot", "differences")})


def _open_check(kind: str) -> Callable[["EngineState", str], bool] | None:
    """Whether the cause of an alert of this kind is still there; None: such alerts end after a while."""
    found = _LASTS.get(kind)
    for one in components():
        if kind in one.alerts:
            return one.alerts[kind].lasts
    return found


def raise_alert(state: "EngineState", kind: str, about: str, text: str, since: int | None = None) -> None:
    """Open an alert, or note that an open one was raised again; its cause began at ``since``, or now."""
    key, now = f"{kind} {about}", state.now
    fades = _open_check(kind) is None or (kind, about) in _MOMENTS
    until = now + FADES if fades else None
    known = state.alerts.get(key)
    if known is None:
        state.alerts[key] = OpenAlert(kind, about, text, now if since is None else since, now, until=until)
    else:
        state.alerts[key] = replace(known, text=text, last=now, times=known.times + 1, until=until)


def withdraw_alert(state: "EngineState", kind: str, about: str) -> None:
    """Close an alert about a single event, because its cause is gone."""
    state.alerts.pop(f"{kind} {about}", None)


def _is_gone(state: "EngineState", alert: OpenAlert) -> bool:
    """Whether the subject of an alert of a moment is gone, as far as components know such subjects."""
    checks = [one.alert_subjects[alert.kind] for one in components() if alert.kind in one.alert_subjects]
    return bool(checks) and not any(check(state, alert.about) for check in checks)


def close_alerts(state: "EngineState") -> None:
    """Remove the alerts that are over."""
    for key, alert in list(state.alerts.items()):
        if alert.until is not None:
            lasts = state.now < alert.until and not (alert.about and _is_gone(state, alert))
        else:
            check = _open_check(alert.kind)
            lasts = check is not None and check(state, alert.about)
        if not lasts:
            del state.alerts[key]
