"""Settings of predictions: ``predict``, ``predict_from`` and ``queue_predict`` of ``[clusters.NAME]``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from schedd.dialect.accounting_files import log_fault
from schedd.policy.feature_settings import FeatureFields
from schedd.policy.site_tables import QueueName
from schedd.wire.section import Section


class PredictionSettings(Section):
    """Whether run times are predicted, and from which earlier jobs."""

    predict: bool = False
    """Learn run times of jobs, and show expected starts (P50 and P90). If off, learned data are deleted. In
    both cases jobs are ended at their walltime, and promises assume full walltimes.
    """
    predict_from: Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$", max_length=4096)] = ""
    """The server's accounting logs, a file or the directory of daily ones (`server_priv/accounting`), or
    the output of Slurm's `sacct` (`--parsable2` or `--json`): the jobs of the last year are read from them
    at the first start, for predictions from the beginning.
    """
    queue_predict: dict[QueueName, bool] = Field(default_factory=dict)
    """`predict` for single queues: `{ debug = false }`."""

    def predicts(self, queue: str) -> bool:
        """Whether the run times of a queue's jobs are predicted, and their starts expected."""
        return self.predict and self.queue_predict.get(queue, True)


def prediction_settings(settings: Section) -> PredictionSettings:
    """Return the settings of a cluster as those of predictions, which they inherit."""
    assert isinstance(settings, PredictionSettings)
    return settings


def _advice(settings: PredictionSettings) -> Iterator[str]:
    logs = settings.predict_from if settings.predict else None
    if logs and (fault := log_fault(Path(logs))):
        yield f"predict_from: {logs}: {fault}; run times of earlier jobs are not learned"


CLUSTER_FIELDS: Final = FeatureFields(
    model=PredictionSettings,
    heading="Predicted run times",
    site_defaults={"predict": True},
    advice=_advice,
)
