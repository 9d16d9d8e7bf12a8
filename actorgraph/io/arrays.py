"""Arrays in safetensors files: a size, a header of JSON, bytes.

The format is read and written here, so that every environment can read files of others, every dtype
of graphs is supported, and all sizes are checked.  Complex arrays are stored as pairs of floats,
with their dtype in the metadata, since not all readers know complex numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from actorgraph.errors import GraphError, GraphTypeError, printable, text_of
from actorgraph.types import dtype_of

_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64",
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_PARTS = {"complex64": "float32", "complex128": "float64"}
_ALIGNED = 8


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write arrays to a safetensors file.

    Parameters
    ----------
    path : path-like
    arrays : mapping of str to array
        For instance the result of `Module.state_dict`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import actorgraph as ag
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "weights.safetensors"
    >>> ag.io.write_arrays(path, ag.nn.Linear(2, 3).state_dict())
    >>> {name: array.shape for name, array in ag.io.read_arrays(path).items()}
    {'weight': (3, 2), 'bias': (3,)}
    """
    Path(path).write_bytes(packed_arrays(arrays))


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a safetensors file of any writer.

    Raises
    ------
    GraphError
        The file is not of the format, or has a dtype that graphs do not have.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "one.safetensors"
    >>> ag.io.write_arrays(path, {"ones": np.ones(2)})
    >>> ag.io.read_arrays(path)["ones"]
    array([1., 1.])
    """
    try:
        return unpacked_arrays(Path(path).read_bytes())
    except (GraphError, MemoryError) as error:
        raise GraphError(f"{path}: {text_of(error)}") from error


def packed_arrays(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as the bytes of a file, contiguous and in little endian."""
    header: dict[str, Any] = {}
    complexes: dict[str, str] = {}
    chunks: list[bytes] = []
    place = 0
    named = [(name, np.asarray(value)) for name, value in arrays.items()]
    for name, array in sorted(named, key=_itemsize):
        shape, dtype = [*array.shape], array.dtype.name
        if dtype in _PARTS:
            complexes[name], shape, dtype = dtype, [*shape, 2], _PARTS[dtype]
        if dtype not in _NAMES or name == "__metadata__":
            raise GraphTypeError(
                f"{name!r} is an array of {array.dtype}, which the format does not support"
            )
        data = array.astype(array.dtype.newbyteorder("<"), order="C").tobytes()
        end = place + len(data)
        header[name] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": [place, end]}
        chunks.append(data)
        place = end
    # The header has the given order, which readers see; the bytes are ordered by alignment.
    ordered = {name: header[name] for name in arrays}
    text = json.dumps({"__metadata__": complexes, **ordered} if complexes else ordered).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return b"".join([len(text).to_bytes(8, "little"), text, *chunks])


def _itemsize(item: tuple[str, np.ndarray[Any, Any]]) -> int:
    return -int(item[1].dtype.itemsize)


def unpacked_arrays(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Return copies of the arrays in the bytes of a file; all sizes in them are checked."""
    try:
        size = int.from_bytes(data[:8], "little")
        if not len(data) >= 8 + size:
            raise ValueError(f"{len(data)} bytes cannot hold a header of {size}")
        header = json.loads(str(data[8 : 8 + size], "utf-8"))
        complexes = header.pop("__metadata__", {})
        body = memoryview(data)[8 + size :]
        _check_cover([entry["data_offsets"] for entry in header.values()], len(body))
        return {name: _array(entry, complexes.get(name), body) for name, entry in header.items()}
    except GraphTypeError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise GraphError(f"not a file of arrays, or a damaged one: {text_of(error)}") from error


def _check_cover(places: list[Any], size: int) -> None:
    """Raise `ValueError` unless the ranges cover all bytes without gaps or overlaps."""
    at = 0
    for begin, end in sorted((begin, end) for begin, end in places):
        if type(begin) is not int or type(end) is not int or begin != at or end < begin:
            raise ValueError(f"bytes {begin} to {end} of an array do not begin at {at}")
        at = end
    if at != size:
        raise ValueError(f"the arrays have {at} bytes, the file {size}")


def _array(entry: Any, complex_dtype: Any, body: memoryview) -> np.ndarray[Any, Any]:
    begin, end = entry["data_offsets"]
    shape = entry["shape"]
    if not all(type(dim) is int and 0 <= dim < 1 << 48 for dim in shape) or len(shape) > 32:
        raise ValueError(f"the shape {printable(str(shape)[:80])}")
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"the dtype {entry['dtype']!r}")
    dtype = dtype_of(_DTYPES[entry["dtype"]])
    if prod(shape) * dtype.itemsize != end - begin:
        raise ValueError(f"{end - begin} bytes for an array of {dtype}{shape}")
    # A copy is aligned and writable.
    flat = np.array(np.frombuffer(body[begin:end], dtype.newbyteorder("<")), dtype)
    array: np.ndarray[Any, Any] = flat.reshape(shape)
    if complex_dtype is None:
        return array
    if _PARTS.get(complex_dtype) != dtype.name or shape[-1:] != [2]:
        raise ValueError(f"{dtype}{shape} as {complex_dtype!r}")
    pairs: np.ndarray[Any, Any] = array.view(complex_dtype)
    return pairs[..., 0]
