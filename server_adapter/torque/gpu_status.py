"""Devices of a node in the `gpu_status` attribute, as reported by its mom."""

import re
from dataclasses import dataclass
from typing import Final

_ENTRY: Final = re.compile(r"(?:^|,)\s*gpu\[\d{1,6}\]=")
_MODEL: Final = re.compile(r"[A-Za-z]+\d\w*")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One gpu: the product name (`Tesla V100-SXM2-32GB`), and the mode and state as printed."""

    product: str = ""
    mode: str = ""
    state: str = ""

    @property
    def usable(self) -> bool:
        """Whether the server gives this gpu to jobs: never one in mode Prohibited or an unknown mode."""
        return self.state.lower() != "unavailable" and self.mode.lower() != "prohibited"

    @property
    def types(self) -> tuple[str, ...]:
        """Names of this type in requests, in lower case: the product name with `_` for blanks, and its
        first word with a letter and a digit (`v100`).
        """
        name = _NOT_IN_NAMES.sub("_", self.product.lower()).strip("_.-")
        if not name[:1].isalpha():
            return ()
        model = next((word for word in re.split(r"[_-]", name) if _MODEL.fullmatch(word)), "")
        return tuple(dict.fromkeys([name, *([model] if model else [])]))


def parse_gpu_status(text: str) -> tuple[GpuDevice, ...]:
    """Return the devices in `gpu[0]=gpu_id=…;gpu_product_name=…;gpu_mode=…,gpu[1]=…,driver_ver=…`."""
    devices = []
    for entry in _ENTRY.split(text)[1:]:
        pairs = (field.partition("=") for field in entry.split(";"))
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        # The values that follow the last device (driver, time) are joined to its last field by a comma.
        state = fields.get("gpu_state", "").partition(",")[0]
        mode = fields.get("gpu_mode", "").partition(",")[0]
        devices.append(GpuDevice(fields.get("gpu_product_name", "").partition(",")[0], mode, state))
    return tuple(devices)


def common_types(devices: tuple[GpuDevice, ...]) -> tuple[str, ...]:
    """Return the types of all usable devices; none if they differ, because the server does not let a job
    choose among the devices of a node.
    """
    usable = [device for device in devices if device.usable]
    return (
        tuple([name for name in usable[0].types if all(name in one.types for one in usable)])
        if usable
        else ()
    )
