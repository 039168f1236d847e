"""What all tables of the settings have in common."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Section"]


class Section(BaseModel):
    """A table of the file: nothing in it is passed over, and nothing changes it later."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
