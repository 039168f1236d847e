"""Log messages about decisions, each with the event that caused it (*stimulus*)."""

from collections.abc import Iterable

import structlog

from schedd.wire import Alert, Decision, ExtendRun, Run

_log = structlog.get_logger(__name__)


def log_decisions(cluster: str, decisions: Iterable[Decision]) -> None:
    """Log starts, longer walltimes and alerts. Published starts are too many; they are in the database."""
    for made in decisions:
        match made:
            case Run():
                nodes = [share.node for share in made.shares]
                about = {"decision": made.id, "stimulus": made.cause, "nodes": nodes}
                _log.info("a job is to be started", cluster=cluster, job=made.job_id, **about)
            case ExtendRun():
                _log.info(
                    "a run is to be extended",
                    cluster=cluster,
                    job=made.job_id,
                    decision=made.id,
                    stimulus=made.cause,
                    walltime=made.walltime,
                )
            case Alert():
                about = {"decision": made.id, "stimulus": made.cause, "kind": made.kind}
                _log.warning(made.text, cluster=cluster, **about)
            case _:
                pass
