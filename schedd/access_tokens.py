"""Roles of the holders of access tokens, and the form of their names."""

import re
from typing import Final, Literal

Role = Literal["user", "reader", "operator", "adapter", "admin", "proxy", "federation"]

NAME_OF_TOKEN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
