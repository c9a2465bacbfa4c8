"""Frames between teccl and a solver's process: a small JSON header, then raw arrays."""

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_LENGTH = struct.Struct("<Q")


def send(
    stream: BinaryIO, kind: str, fields: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write one frame; arrays are one-dimensional."""
    shapes = [(name, array.dtype.str, len(array)) for name, array in arrays.items()]
    header = json.dumps({"kind": kind, "fields": dict(fields), "arrays": shapes}).encode()
    stream.write(_LENGTH.pack(len(header)))
    stream.write(header)
    for array in arrays.values():
        stream.write(np.ascontiguousarray(array).view(np.uint8).data)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[str, dict[str, Any], dict[str, Array]] | None:
    """Read one frame, None at the end of the stream.

    Raises
    ------
    ValueError
        If the stream ends within a frame or holds something else.
    """
    prefix = stream.read(_LENGTH.size)
    if not prefix:
        return None
    header = json.loads(_exactly(stream, _LENGTH.unpack(_padded(prefix))[0]))
    arrays: dict[str, Array] = {}
    for name, kind, size in header["arrays"]:
        array = np.empty(size, dtype=kind)
        view = array.view(np.uint8).data
        at = 0
        while at < len(view):
            got = stream.readinto(view[at:])  # type: ignore[attr-defined]
            if not got:
                raise ValueError("the stream ends within an array")
            at += got
        arrays[name] = array
    return header["kind"], header["fields"], arrays


def _padded(prefix: bytes) -> bytes:
    if len(prefix) < _LENGTH.size:
        raise ValueError("the stream ends within a frame")
    return prefix


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ValueError("the stream ends within a frame")
    return data
