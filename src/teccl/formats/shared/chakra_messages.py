"""The messages of a Chakra execution trace, as far as they are used here.

The fields and numbers are those of Chakra's public schema (``et_def.proto``). Built at run time,
they need neither a compiler nor a generated module; fields not listed are skipped on reading.
"""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, proto

COMPUTE, SEND, RECEIVE = 4, 5, 6
# Of the schema, as ASTRA-sim's own traces state it.
VERSION = "0.0.4"

_Field = descriptor_pb2.FieldDescriptorProto
# Of each message: name, number, type, whether it repeats.
_MESSAGES: dict[str, tuple[tuple[str, int, int | str, bool], ...]] = {
    "AttributeProto": (
        ("name", 1, _Field.TYPE_STRING, False),
        ("int32_val", 7, _Field.TYPE_INT32, False),
        ("int64_val", 9, _Field.TYPE_INT64, False),
        ("bool_val", 27, _Field.TYPE_BOOL, False),
        ("string_val", 29, _Field.TYPE_STRING, False),
    ),
    "GlobalMetadata": (
        ("version", 1, _Field.TYPE_STRING, False),
        ("attr", 2, "AttributeProto", True),
    ),
    "Node": (
        ("id", 1, _Field.TYPE_UINT64, False),
        ("name", 2, _Field.TYPE_STRING, False),
        # An enumeration, which is written as an int32 is.
        ("type", 3, _Field.TYPE_INT32, False),
        ("ctrl_deps", 4, _Field.TYPE_UINT64, True),
        ("data_deps", 5, _Field.TYPE_UINT64, True),
        ("duration_micros", 7, _Field.TYPE_UINT64, False),
        ("attr", 10, "AttributeProto", True),
    ),
}
_PACKAGE = "ChakraProtoMsg"


def _build() -> dict[str, Any]:
    """Return the message classes by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="teccl/chakra.proto", package=_PACKAGE, syntax="proto3"
    )
    for message, fields in _MESSAGES.items():
        entry = file.message_type.add(name=message)
        for name, number, kind, repeats in fields:
            label = _Field.LABEL_REPEATED if repeats else _Field.LABEL_OPTIONAL
            field = entry.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
            # Values of an attribute are written even when they are zero, as in a `oneof`.
            if message == "AttributeProto" and name != "name":
                field.oneof_index = 0
        if message == "AttributeProto":
            entry.oneof_decl.add(name="value")
    # A pool of its own: another package may bring the whole schema under the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _build()
AttributeProto = _CLASSES["AttributeProto"]
GlobalMetadata = _CLASSES["GlobalMetadata"]
Node = _CLASSES["Node"]


def delimited(messages: Iterable[Any]) -> bytes:
    """Return messages one after the other, each with its length before it."""
    stream = BytesIO()
    for message in messages:
        proto.serialize_length_prefixed(message, stream)
    return stream.getvalue()


def read_trace(data: bytes) -> tuple[Any, list[Any]]:
    """Return the metadata and the nodes of a trace.

    Raises
    ------
    ValueError
        If the data is no sequence of such messages.
    """
    from google.protobuf.message import DecodeError

    stream = BytesIO(data)
    try:
        metadata = proto.parse_length_prefixed(GlobalMetadata, stream)
        nodes = list(_nodes(stream))
    except (DecodeError, EOFError, ValueError) as problem:
        raise ValueError(f"not a trace: {problem}") from None
    if metadata is None:
        raise ValueError("not a trace: it is empty")
    return metadata, nodes


def _nodes(stream: BytesIO) -> Iterator[Any]:
    while (node := proto.parse_length_prefixed(Node, stream)) is not None:
        yield node
