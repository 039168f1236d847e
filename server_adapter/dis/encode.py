"""Values to DIS bytes, always in the shortest form (protocol document, section 4)."""

from collections.abc import Iterable

from server_adapter.dis.attribute import Attribute
from server_adapter.text import encode_text


def encode_integer(value: int) -> bytes:
    """`7 -> +7`, `12 -> 2+12`, `-1 -> -1`, `1795258947 -> 210+1795258947`."""
    digits = str(abs(value))
    text = ("-" if value < 0 else "+") + digits
    count = len(digits)
    while count > 1:
        prefix = str(count)
        text = prefix + text
        count = len(prefix)
    return text.encode("ascii")


def encode_string(value: str | bytes) -> bytes:
    """The length in bytes, then the bytes: `root -> +4root`. Text travels as `encode_text` has it."""
    raw = value if isinstance(value, bytes) else encode_text(value)
    return encode_integer(len(raw)) + raw


def encode_attribute(attribute: Attribute) -> bytes:
    """Size, name, optional resource, value, operator."""
    size = attribute.size if attribute.declared_size is None else attribute.declared_size
    resource = b"+0" if attribute.resource is None else b"+1" + encode_string(attribute.resource)
    return b"".join(
        (
            encode_integer(size),
            encode_string(attribute.name),
            resource,
            encode_string(attribute.value),
            encode_integer(attribute.operation),
        )
    )


def encode_attributes(attributes: Iterable[Attribute]) -> bytes:
    """An attribute list: the number of entries, then the entries."""
    entries = [encode_attribute(attribute) for attribute in attributes]
    return encode_integer(len(entries)) + b"".join(entries)
