"""Requests by tasks (`qsub -L`) in the attribute `req_information` of a job."""

import re
from collections.abc import Mapping
from typing import Final

_ITEM: Final = re.compile(r"req_information\.([a-z_]+)\.(\d{1,4})")
_BY_TASKS: Final = "2"
"""The `request_version` of such a job. A server with cgroups shows the attribute for any job that has run."""
_VALUES: Final[Mapping[str, str]] = {
    "lprocs": "lprocs",
    "memory": "memory",
    "swap": "swap",
    "disk": "disk",
    "gpus": "gpus",
    "mics": "mics",
    "maxtpn": "maxtpn",
    "gres": "gres",
    "features": "feature",
    "opsys": "opsys",
    "arch": "arch",
    "reqattr": "reqattr",
}
_PLACES: Final = ("node", "socket", "numanode", "core", "thread")
_WORDS: Final = ("gpu_mode", "thread_usage_policy")


def task_request(values: Mapping[str, str]) -> str:
    """Return the request in the form of qsub, with `+` between several: `2:lprocs=4:gpus=1+1:lprocs=8`.

    Empty for a job that was not submitted with `-L`.
    """
    if values.get("request_version") != _BY_TASKS:
        return ""
    found: dict[int, dict[str, str]] = {}
    for key, value in values.items():
        if (match := _ITEM.fullmatch(key)) is not None:
            found.setdefault(int(match[2]), {})[match[1]] = value.strip()
    return "+".join(_one_request(found[index]) for index in sorted(found))


def _one_request(items: Mapping[str, str]) -> str:
    parts = [items.get("task_count", "1")]
    parts += [f"{name}={items[key]}" for key, name in _VALUES.items() if key in items]
    parts += [f"place={name}={items[name]}" for name in [one for one in _PLACES if one in items][:1]]
    parts += [items[key] for key in _WORDS if key in items]
    parts += ["pack"] if items.get("pack") == "true" else []
    return ":".join(parts)
