"""Settings of accounts: ``[clusters.NAME.site.accounts]``."""

from typing import Annotated, Final, Literal

from pydantic import Field

from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Section


class AccountSettings(Section):
    """Which account a job uses, and what happens to jobs of empty accounts. Accounts are created by
    `schedd account set`. See docs/administrators/accounts.md.
    """

    by: Literal["account", "project", "group", "user"] = "account"
    """Which attribute of a job names its account: `account` is `qsub -A`, `project` is `qsub -P`."""
    otherwise: Annotated[str, Field(pattern=r"^[^\s/\x00-\x1f]{0,255}$")] = ""
    """Account of jobs that name none; empty: they are not charged."""
    unknown: Literal["run", "wait"] = "run"
    """Whether jobs with an unknown account, or none, run uncharged or wait."""
    empty: Literal["wait", "last"] = "wait"
    """Whether jobs of an account with too little left wait or get the lowest priority."""
    gpu: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)] = 0.0
    """Core-hours charged per gpu-hour."""
    logs: Annotated[str, Field(max_length=4096)] = ""
    """The server's accounting logs, if the daemon can read them: a file, or the directory of daily ones
    (`/var/spool/torque/server_priv/accounting`). Jobs that ended while the daemon or adapter was away are
    charged from them."""


SETTINGS: Final = FeatureSettings(
    table="accounts",
    model=AccountSettings,
    about="Accounts and budgets: `[clusters.main.site.accounts]`.",
    heading="Accounts",
)
