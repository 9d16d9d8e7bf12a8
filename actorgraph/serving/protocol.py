"""The Open Inference Protocol, version 2: requests and answers as bytes, JSON and binary.

A body with the header ``Inference-Header-Content-Length`` is so many bytes of JSON, followed by the
tensors with a ``binary_data_size`` in the JSON, in order, in little endian.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, TypeAlias

import numpy as np

from actorgraph.errors import GraphError, shown, text_of
from actorgraph.graph import Node
from actorgraph.serving.errors import InvalidInput, ServingError, Unsupported
from actorgraph.serving.model import ServedModel
from actorgraph.serving.signature import Array
from actorgraph.types import dtype_of

Dtype: TypeAlias = np.dtype[Any]
"""Of NumPy."""

_ReadTensor: TypeAlias = Callable[[str, Mapping[str, Any], Dtype, list[int]], Array]
"""Returns the array of an input; takes its name, its JSON object, its dtype and shape."""

_DTYPES = {
    "BOOL": "bool", "FP16": "float16", "FP32": "float32", "FP64": "float64", "BF16": "bfloat16",
    **{f"INT{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"UINT{n}": f"uint{n}" for n in (8, 16, 32, 64)},
}  # fmt: skip
_DATATYPES = {dtype: datatype for datatype, dtype in _DTYPES.items()}
_KINDS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}
"""The kinds of JSON values that each kind of dtype accepts."""


_ORJSON: Any = None
"""The module orjson, which is several times faster, where it is installed (extra `serve`)."""
with suppress(ImportError):
    import orjson

    _ORJSON = orjson


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request after parsing."""

    inputs: dict[str, Array]
    outputs: dict[str, bool]  # the wanted outputs, and whether in binary
    identity: str | None  # its ``id``
    timeout_s: float | None
    priority: int
    parameters: dict[str, Any]  # all parameters of the request

    def keywords(self, *limits_s: float | None, request_id: str | None) -> dict[str, Any]:
        """Return the keywords of `ServedModel.infer`; the least of the limits is the deadline."""
        limits = [limit_s for limit_s in (self.timeout_s, *limits_s) if limit_s is not None]
        return {
            "deadline_s": min(limits, default=None),
            "priority": self.priority,
            "request_id": self.identity if request_id is None else request_id,
        }


def metadata(model: ServedModel, versions: list[str]) -> dict[str, Any]:
    """Return the protocol's metadata of a model."""
    signature = model.signature
    return {
        "name": model.name,
        "versions": versions,
        "platform": "actorgraph_graph",
        "inputs": [tensor(name, node) for name, node in signature.inputs.items()],
        "outputs": [tensor(name, node) for name, node in signature.outputs.items()],
    }


def tensor(name: str, node: Node) -> dict[str, Any]:
    """Return the protocol's metadata of an input or output; -1 is a dim that may vary."""
    shape = [dim if isinstance(dim, int) else -1 for dim in node.dims]
    return {"name": name, "datatype": datatype_of(name, node.dtype), "shape": shape}


def datatype_of(name: str, dtype: Dtype) -> str:
    """Return the protocol's datatype for a dtype, or raise `Unsupported`."""
    datatype = _datatype(dtype)
    if datatype is None:
        raise Unsupported(f"{name!r} is {dtype}, for which the protocol has no datatype")
    return datatype


@cache
def _datatype(dtype: Dtype) -> str | None:
    return _DATATYPES.get(dtype.name)


@cache
def _dtype_of(datatype: str) -> Dtype:
    return dtype_of(_DTYPES[datatype])


# -- requests -----------------------------------------------------------------------------------


def parse_body(model: ServedModel, body: bytes, header_bytes: int | None = None) -> ParsedRequest:
    """Return the request in a body, of which `header_bytes` are JSON; default all."""
    if header_bytes is not None and not 0 <= header_bytes <= len(body):
        raise InvalidInput(f"the JSON header has {header_bytes} bytes, but the body {len(body)}")
    binary = memoryview(body)[len(body) if header_bytes is None else header_bytes :]

    def array(name: str, tensor: Mapping[str, Any], dtype: Dtype, shape: list[int]) -> Array:
        nonlocal binary
        size = parameters_of(tensor).get("binary_data_size")
        if size is None:
            return _from_json(name, tensor.get("data"), dtype, shape)
        if not _is_size(size) or size > len(binary):
            raise InvalidInput(
                f"the binary_data_size of input {name!r} is {shown(size)}, but {len(binary)} bytes "
                "are left of the body"
            )
        content, binary = binary[:size], binary[size:]
        return from_bytes(name, content, dtype, shape)

    parsed = parse_request(model, json_object(body[:header_bytes]), array)
    if len(binary):
        raise InvalidInput(f"{len(binary)} bytes follow the last binary input")
    return parsed


def parse_request(
    model: ServedModel, given: Mapping[str, Any], array: _ReadTensor
) -> ParsedRequest:
    """Return the request in an object of the protocol; `array` reads each input."""
    inputs: dict[str, Array] = {}
    for tensor in _list(given, "inputs"):
        name = _name(tensor, "inputs")
        if name in inputs:
            raise InvalidInput(f"input {name!r} is given twice")
        inputs[name] = array(name, tensor, *_type(name, tensor))
    parameters = parameters_of(given)
    if parameters.get("sequence_id"):
        raise Unsupported("sequences are not served")
    timeout, identity = parameters.get("timeout"), given.get("id")
    if timeout is not None and not _is_size(timeout):
        raise InvalidInput(f"timeout is a whole number of microseconds, got {shown(timeout)}")
    if identity is not None and not isinstance(identity, str):
        raise InvalidInput(f"id is a string, got {shown(identity)}")
    return ParsedRequest(
        inputs, _outputs(model, given, parameters), identity,
        timeout / 1e6 if timeout else None, parameters.get("priority", 0), parameters,
    )  # fmt: skip


def json_object(text: bytes) -> dict[str, Any]:
    """Return the object that a body holds as JSON, or raise `InvalidInput`."""
    try:
        content = (
            _ORJSON.loads(text) if _ORJSON else json.loads(text, parse_constant=_refuse_constant)
        )
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InvalidInput(f"the body has to be a JSON object, got {shown(content)}")
    return content


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _list(given: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    objects = given.get(key, [])
    if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
        raise InvalidInput(f"{key} has to be a list of objects, got {shown(objects)}")
    return objects


def _name(tensor: Mapping[str, Any], key: str) -> str:
    name = tensor.get("name")
    if not isinstance(name, str):
        raise InvalidInput(f"each of {key} needs a name, a string, got {shown(name)}")
    return name


def parameters_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request, or of a tensor."""
    parameters = given.get("parameters", {})
    if not isinstance(parameters, dict):
        raise InvalidInput(f"parameters has to be an object, got {shown(parameters)}")
    return parameters


async def change_repository(
    model: str, call: Callable[[str], Awaitable[Any]], parameters: Mapping[str, Any]
) -> None:
    """Load or unload a model by `call`; a `GraphError` says what went wrong."""
    unknown = [name for name, value in parameters.items() if value]
    if unknown:
        raise Unsupported(
            f"loading and unloading models takes no parameters: {shown(unknown)} is not known"
        )
    try:
        await call(model)
    except GraphError:
        raise
    except Exception as error:  # of the user's code
        raise ServingError(f"model {model!r} was not loaded: {text_of(error)}") from error


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _outputs(
    model: ServedModel, given: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, bool]:
    known = model.signature.outputs
    binary = parameters.get("binary_data_output") is True
    asked = _list(given, "outputs")
    wanted = {} if asked else dict.fromkeys(known, binary)
    for tensor in asked:
        name = _name(tensor, "outputs")
        if name not in known:
            names = ", ".join(map(repr, known))
            raise InvalidInput(f"model {model.name!r} has no output {name!r}; it has {names}")
        own = parameters_of(tensor)
        if own.get("classification"):
            raise Unsupported("classification of outputs is not served")
        wanted[name] = own.get("binary_data", binary) is True
    for name in wanted:  # refused before a run is spent on it
        if _datatype(known[name].dtype) is None:
            raise InvalidInput(
                f"output {name!r} is {known[name].dtype}, for which the protocol has no datatype; "
                "ask for others"
            )
    return wanted


def _type(name: str, tensor: Mapping[str, Any]) -> tuple[Dtype, list[int]]:
    datatype, shape = tensor.get("datatype"), tensor.get("shape")
    if not isinstance(datatype, str) or datatype not in _DTYPES:
        raise InvalidInput(
            f"input {name!r} has the datatype {shown(datatype)}; known are {', '.join(_DTYPES)}"
        )
    if not isinstance(shape, list) or not all(map(_is_size, shape)) or len(shape) > 32:
        raise InvalidInput(f"the shape of input {name!r} is a list of sizes, got {shown(shape)}")
    dtype = _dtype_of(datatype)
    if prod(max(size, 1) for size in shape) * dtype.itemsize >= 1 << 63:
        raise InvalidInput(f"the shape of input {name!r} is too large: {shown(shape)}")
    return dtype, shape


def from_bytes(name: str, data: bytes | memoryview, dtype: Dtype, shape: list[int]) -> Array:
    """Return the array in these little-endian bytes, or raise `InvalidInput`."""
    expected = prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise InvalidInput(
            f"input {name!r} is {dtype}{shape}, which takes {expected} bytes, but it has "
            f"{len(data)}"
        )
    return little(np.frombuffer(data, dtype)).reshape(shape)


def little(array: Array) -> Array:
    """Convert an array between the byte order of this machine and little endian."""
    return array if sys.byteorder == "little" else array.byteswap()


def _from_json(name: str, data: Any, dtype: Dtype, shape: list[int]) -> Array:
    if dtype.itemsize == 2 and dtype.kind in "fV":
        raise InvalidInput(f"input {name!r} is {_datatype(dtype)}, which comes in binary only")
    if not isinstance(data, list):
        raise InvalidInput(f"the data of input {name!r} have to be a list, got {shown(data)}")
    try:
        array = np.asarray(data)
    except (ValueError, RecursionError) as error:  # ragged, or too deep
        raise InvalidInput(f"the data of input {name!r} are not an array: {error}") from None
    if array.size and array.dtype.kind not in _KINDS[dtype.kind]:
        raise InvalidInput(f"the data of input {name!r} should be {dtype}, got {array.dtype}")
    values = cast(name, array, dtype, shape)
    if dtype.kind == "f" and not np.isfinite(values).all():
        raise InvalidInput(f"the data of input {name!r} have numbers beyond {dtype}")
    return values


def cast(name: str, array: Array, dtype: Dtype, shape: list[int]) -> Array:
    """Return the values with this dtype and shape, or raise `InvalidInput` if they do not fit."""
    if array.size != prod(shape):
        raise InvalidInput(
            f"input {name!r} has the shape {shape}, which is {prod(shape)} values, but its data "
            f"are {array.size}"
        )
    with np.errstate(all="ignore"):
        values = array.astype(dtype)
        if dtype.kind not in "fV" and not (values == array).all():
            raise InvalidInput(f"the data of input {name!r} have numbers beyond {dtype}")
    return values.reshape(shape)


# -- answers ------------------------------------------------------------------------------------


def answer(
    model: ServedModel, parsed: ParsedRequest, results: Mapping[str, Array]
) -> tuple[bytes, int | None]:
    """Return the body for the results, and how many bytes of it are JSON if not all."""
    tensors, blobs = [], []
    for name, binary in parsed.outputs.items():
        array = results[name]
        datatype, shape = datatype_of(name, array.dtype), list(array.shape)
        tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
        if binary:
            blobs.append(little(array).tobytes())
            tensor["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            tensor["data"] = _json_values(name, array)
        tensors.append(tensor)
    content: dict[str, Any] = {"model_name": model.name, "model_version": model.version}
    content["outputs"] = tensors
    if parsed.identity is not None:
        content["id"] = parsed.identity
    header = _to_json(content)
    return b"".join((header, *blobs)), len(header) if blobs else None


def _to_json(content: Any) -> bytes:
    if _ORJSON:
        text: bytes = _ORJSON.dumps(content, option=_ORJSON.OPT_SERIALIZE_NUMPY)
        return text
    return json.dumps(content).encode()


def _json_values(name: str, array: Array) -> Any:
    short = array.itemsize == 2 and array.dtype.kind in "fV"
    if short or (array.dtype.kind == "f" and not np.isfinite(array).all()):
        what = f"is {_datatype(array.dtype)}" if short else "is not finite"
        raise Unsupported(
            f"output {name!r} {what}, which JSON cannot express; ask for it in binary "
            '(outputs: [{"name": ..., "parameters": {"binary_data": true}}])'
        )
    return np.ascontiguousarray(array).ravel() if _ORJSON else array.ravel().tolist()
