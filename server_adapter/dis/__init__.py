"""DIS, the self-delimiting text encoding of TORQUE's batch protocol (protocol document, section 4)."""

from server_adapter.dis.attribute import Attribute, Operation, values_by_key
from server_adapter.dis.decode import DEFAULT_LIMITS, Decoder, Limits
from server_adapter.dis.encode import encode_attribute, encode_attributes, encode_integer, encode_string
from server_adapter.dis.errors import DisError, DisIncompleteError, DisLimitError, DisSyntaxError
from server_adapter.dis.scan import AttributeScanner, shared_scanner
from server_adapter.text import decode_text, encode_text, is_plain

__all__ = [
    "DEFAULT_LIMITS",
    "Attribute",
    "AttributeScanner",
    "Decoder",
    "DisError",
    "DisIncompleteError",
    "DisLimitError",
    "DisSyntaxError",
    "Limits",
    "Operation",
    "decode_text",
    "encode_attribute",
    "encode_attributes",
    "encode_integer",
    "encode_string",
    "encode_text",
    "is_plain",
    "shared_scanner",
    "values_by_key",
]
