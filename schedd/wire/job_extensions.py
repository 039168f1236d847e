"""Extensions of a job: ``qsub -W x=NACCESSPOLICY:SINGLEJOB;QOS=high``."""

import re
from typing import Final

_SEPARATOR: Final = re.compile("[:=]")
_RESOURCE: Final = "naccesspolicy"  # the extension that is also a resource


def extension_resources(text: str) -> dict[str, str]:
    """Return the extensions as requested resources: ``naccesspolicy``, and ``x.NAME`` in lower case for all
    other names. A value may have colons: ``DEADLINE=+06:00:00``.
    """
    found = {}
    for item in text.split(";"):
        name, *value = _SEPARATOR.split(item, maxsplit=1)
        if key := name.strip().lower():
            found[key if key == _RESOURCE else f"x.{key}"] = "".join(value).strip()
    return found
