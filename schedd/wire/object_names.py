"""Form of the names that administrators and users give to clusters, reservations and bookings."""

import re
from typing import Final

OBJECT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
