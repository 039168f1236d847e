"""Base class of all settings tables."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Section"]


class Section(BaseModel):
    """A table of the file: unknown keys are rejected, and values are immutable.

    The docstrings of its fields describe the settings (`setting_descriptions`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
