"""Current faults of a cluster, each with its start and the command that helps."""

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal

from schedd.engine import OpenAlert
from schedd.service.cluster.adapter_contact import ADAPTER_REFUSED
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.start_sentence import format_utc
from schedd.wire.adapter_troubles import CLOCK_SET_BACK

_ADAPTER_LOG: Final = "`journalctl -u pbs-adapter -n 50`"
_DAEMON_LOG: Final = "`journalctl -u schedd -n 50`"
_ADAPTER_TOKEN: Final = (
    "`schedd token create pbs-adapter --role adapter` on the daemon's host; put it into the file "
    "daemon.token_file of pbs-adapter.toml, then `systemctl restart pbs-adapter`"
)
_SERVER_LACKS: Final = "`qstat -a` and `pbsnodes -a`; `schedd resume CLUSTER`, if what they lack is gone"
_DISK_FULL: Final = "`df -h` on the database's host; free space on its disk"
_FILE_GONE: Final = "put the file back; if it is lost, restore a backup (docs/administrators/operate.md)"
_DATABASE_FILE: Final = "`ls -l` of the file and its folder, and `mount`: can schedd's user write there?"

REMEDIES: Final[Mapping[str, str]] = {
    "adapter": "`systemctl restart pbs-adapter` on the server's host; log: `journalctl -u pbs-adapter`",
    "adapter_work": _ADAPTER_LOG,
    "background": _DAEMON_LOG,
    "batch_skipped": _DAEMON_LOG,
    "black_hole": "`pbsnodes NODE`; repair it, then set it offline and online",
    "bookkeeping": "`schedd account`",
    "by_hand": "",
    "calls": "listen.host in pbs-adapter.toml, then `systemctl restart pbs-adapter`",
    "clock": "`chronyc tracking`",
    "co_allocation": "`journalctl -u schedd-federation -n 50`",
    "database": "`df -h`, if its disk is full; else `systemctl status postgresql`",
    "error": _DAEMON_LOG,
    "expected": "`schedd accuracy`",
    "failing_together": "`tracejob` of two of the jobs; look for a common prologue, hook or file system",
    "foreign": "stop the other scheduler, then `schedd resume CLUSTER`",
    "feature": _DAEMON_LOG,
    "formula": "`schedd policy`",
    "licence": "run the licence's command by hand",
    "limit": "`qmgr -c 'print server'`",
    "log": "nothing after a restore; else find out why the database is older than it was",
    "lost_run": "`momctl -d 3 -h` with each of its nodes; `qdel -p JOB` if none has it",
    "mode": "correct mode in pbs-adapter.toml or schedd.toml",
    "no_room": _DAEMON_LOG,
    "notices": "start the relay, or let it accept mail from this host; else correct `[notify]`",
    "node": "remove kinds of resources that no job requests",
    "nodes_down": "`pbsnodes -l`; `schedd hold -w down --reason repair`, if all of them are under repair",
    "overrun": "`qdel JOB`",
    "planner": _DAEMON_LOG,
    "policy": "`schedd config check`, then `systemctl reload schedd`",
    "power": "`schedd power`",
    "preemption": _ADAPTER_LOG,
    "promises": "`schedd policy preview FILE` with the previous file; then `systemctl reload schedd` with it",
    "quarantine": "`qalter` or `qdel JOB`",
    "registration": "stop the other scheduler; `qmgr -c 'list sched'`",
    "refused_cores": "`momctl -d 3 -h NODE`; restart pbs_server if no job holds the cores",
    "reservation": "`schedd reservation list`",
    "resource": "make the adapter's user a manager: `qmgr -c 'set server managers += USER'`",
    "server": "`systemctl status pbs_server` (OpenPBS: pbs) on the server's host; start it if it is down",
    "settings": "`schedd config check`, then `systemctl reload schedd`",
    "snapshot": _ADAPTER_LOG,
    "starts_refused": _ADAPTER_LOG,
    "stuck_vnodes": "restart pbs_server, which frees them",
    "suspension": "`qsig -s resume JOB`",
    "unanswered": _ADAPTER_LOG,
    "unknown_job": "",
    "walltime_extension": _ADAPTER_LOG,
    "webhook": "correct url in `[[webhooks]]`, or start its receiver",
    "writing": "make the adapter's user a manager: `qmgr -c 'set server managers += USER'`",
}
"""What to do first for each kind of alert, with commands between backticks; empty: nothing is to be done."""

SEVERE_KINDS: Final = frozenset(
    {
        *("adapter", "batch_skipped", "clock", "database", "foreign", "planner", "server"),
        *("registration", "snapshot", "starts_refused"),
    }
)
"""Kinds of alerts whose faults make the plan wrong or stop all starts."""


@dataclass(frozen=True, slots=True)
class JobStartState:
    """Whether due jobs are started."""

    state: Literal["good", "warn", "bad"]
    """`good`: they are, by this scheduler or, as configured, by another one."""
    words: str
    """In brief: `on`, or `stopped, adapter silent`."""
    reason: str = ""
    """The same as a clause; empty while jobs are started."""
    remedy: str = ""
    """The first command to run; empty while jobs are started."""
    alert: str = ""
    """Kind of the open alert with the same cause; empty where no alert opens."""
    since: int | None = None
    """Since when jobs are not started; null: they are, or that is not known."""

    @property
    def starts(self) -> bool:
        """Whether due jobs are started, by this scheduler or, as configured, by another one."""
        return self.state == "good"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertView(OpenAlert):
    """An open alert, and what helps."""

    severe: bool
    """Whether the plan may be wrong, or no jobs are started."""
    remedy: str
    """The first command to run; empty where nothing is to be done."""


@dataclass(frozen=True, slots=True)
class CurrentFault:
    """A fault that is there now. ``since`` is None if its start is unknown, ``about`` a node or job."""

    kind: str
    about: str
    severe: bool
    text: str
    since: int | None
    remedy: str


def job_start_state(loop: PlanLoop) -> JobStartState:
    """Return whether the cluster's jobs are started, and since when they are not."""
    found = _job_start_state(loop)
    if found.starts or found.since is not None:
        return found
    alerts = [alert.since for alert in loop.alerts.current if alert.kind == found.alert]
    return replace(found, since=min(alerts, default=loop.trouble_since(found.alert)))


def _job_start_state(loop: PlanLoop) -> JobStartState:
    published = loop.published
    if published.mode != "scheduler":
        return JobStartState("good", f"by another scheduler (mode {published.mode})")
    if loop.failure:
        return _stopped(loop, "stopped, planner failed", loop.failure, "planner")
    if loop.trouble:
        return _stopped(loop, "stopped, database unavailable", loop.trouble, "database")
    if loop.server_silence:
        return _stopped(loop, "stopped, the server does not answer", loop.server_silence, "server")
    if loop.silence:
        return _stopped(loop, "stopped, adapter silent", loop.silence, "adapter")
    if not loop.on_standby and (absence := loop.adapter_contact.absence):
        remedy = fill_in_remedy(REMEDIES["adapter"], "", loop.name)
        since = _known_time(loop.adapter_contact.awaited_since or -1)
        return JobStartState("warn", f"not yet: {absence}", absence, remedy, since=since)
    if published.paused:
        remedy = f"`schedd resume {loop.name}`"
        words = f"paused: {published.paused}"
        return JobStartState(
            "warn", words, published.halted, remedy, since=_known_time(published.paused_since)
        )
    if published.foreign:
        return _stopped(loop, "stopped, another scheduler starts jobs", published.foreign, "foreign")
    if CLOCK_SET_BACK in published.stale:
        return _stopped(loop, "stopped until the plan is rebuilt", published.stale, "clock")
    if published.stale and published.stale != loop.failing:
        return _stopped(loop, "stopped, server state unknown", published.stale, "snapshot")
    if published.halted and not published.server.scheduling:
        remedy = "`qmgr -c 'set server scheduling = True'`"
        since = _known_time(published.unscheduled_since)
        words = "stopped, the server's scheduling is off"
        return JobStartState("warn", words, published.halted, remedy, since=since)
    if published.halted:
        return JobStartState("warn", f"stopped, {published.halted}", published.halted, _DAEMON_LOG)
    if not loop.on_standby and (why := loop.adapter_troubles.get("registration")):
        return _stopped(loop, "stopped, the adapter is not registered", why, "registration")
    if published.starts_refused:
        by = "adapter" if ", the last by the adapter" in published.starts_refused else "server"
        return _stopped(loop, f"refused by the {by}", published.starts_refused, "starts_refused")
    if loop.on_standby:
        return JobStartState("good", "by the leader; this daemon is on standby")
    return JobStartState("good", "on")


def _known_time(moment: int) -> int | None:
    return moment if moment >= 0 else None


def _stopped(loop: PlanLoop, words: str, reason: str, alert: str) -> JobStartState:
    remedy = fill_in_remedy(_remedy(alert, reason), "", loop.name)
    return JobStartState("bad", words, reason, remedy, alert)


def _remedy(kind: str, text: str) -> str:
    """Return what to do first; a database file has no service."""
    if kind == "database" and "its file was replaced" in text:
        return "`systemctl restart schedd`"
    if kind == "database" and "disk is full" in text:
        return _DISK_FULL
    if kind == "database" and "its file was moved or deleted" in text:
        return _FILE_GONE
    if kind == "database" and "sqlite:" in text:
        return _DATABASE_FILE
    if kind == "clock" and "was set back" in text:
        return f"`chronyc tracking`; if the plan is not back within minutes, {_ADAPTER_LOG}"
    if kind == "log" and text.startswith("the planner's state was rebuilt"):
        return f"nothing after an upgrade; else {_DAEMON_LOG}"
    if kind == "adapter" and ADAPTER_REFUSED in text:
        return _ADAPTER_TOKEN
    if kind == "snapshot" and "the server lacks" in text:
        return _SERVER_LACKS
    if kind in ("starts_refused", "adapter_work") and "cannot write to its state directory" in text:
        return "`df -h` and `ls -ld` of that directory, on the server's host"
    return REMEDIES.get(kind, _DAEMON_LOG)


def current_faults(loop: PlanLoop, alerts: Iterable[OpenAlert]) -> tuple[CurrentFault, ...]:
    """Return faults to act on: what stops all starts, then severe ones, by start.

    ``alerts``: those the reader may see.
    """
    starts = job_start_state(loop)
    opened = tuple(alerts)
    known = {alert.kind for alert in opened}
    found = (*_dispatch_faults(starts, known), *_hidden_pause(loop, starts), *_alert_faults(loop, opened))

    def key(fault: CurrentFault) -> tuple[bool, bool, int]:
        stops = not starts.starts and fault.kind in ("dispatch", starts.alert)
        return not stops, not fault.severe, fault.since or 0

    return tuple(sorted(found, key=key))


def _dispatch_faults(starts: JobStartState, alerts: AbstractSet[str]) -> Iterator[CurrentFault]:
    """A pause and a switched-off server attribute open no alert; others open theirs a moment later."""
    if not starts.starts and starts.alert not in alerts:
        yield CurrentFault("dispatch", "", True, f"Job starts: {starts.words}", starts.since, starts.remedy)


def _hidden_pause(loop: PlanLoop, starts: JobStartState) -> Iterator[CurrentFault]:
    """A pause besides a fault that stops all starts: they go on only after both."""
    published = loop.published
    remedy = f"`schedd resume {loop.name}`"
    if published.paused and starts.state != "good" and starts.remedy != remedy:
        text = f"Job starts: also paused: {published.paused}"
        yield CurrentFault("pause", "", True, text, _known_time(published.paused_since), remedy)


def _alert_faults(loop: PlanLoop, alerts: Iterable[OpenAlert]) -> Iterator[CurrentFault]:
    for alert in alerts:
        one = alert_view(alert, loop.name)
        if one.remedy:
            yield CurrentFault(one.kind, one.about, one.severe, one.text, one.since, one.remedy)


def alert_view(alert: OpenAlert, cluster: str) -> AlertView:
    remedy = fill_in_remedy(_remedy(alert.kind, alert.text), alert.about, cluster)
    # Differences between snapshot and plan are corrected already.
    severe = alert.kind in SEVERE_KINDS and (alert.kind, alert.about) != ("snapshot", "differences")
    return AlertView(**asdict(alert), severe=severe, remedy=remedy)


def add_fault_start(loop: PlanLoop, text: str) -> str:
    """Return the text of a fault with its start, if that is known and not in the text."""
    starts = job_start_state(loop)
    causes = [alert.since for alert in loop.alerts.current if alert.text in text or text in alert.text]
    if not starts.starts and starts.since is not None and starts.reason == text:
        causes.append(starts.since)
    if " since " in text or not causes:
        return text
    return f"{text}, since {format_utc(min(causes))}"


def fill_in_remedy(remedy: str, about: str, cluster: str) -> str:
    """Return the command with the names of the cluster, and of the node or job if it is known."""
    known = {"CLUSTER": cluster, "NODE": about, "JOB": about}
    return re.sub(rf"\b({'|'.join(known)})\b", lambda word: known[word[0]] or word[0], remedy)
