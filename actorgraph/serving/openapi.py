"""The OpenAPI document of a server's HTTP routes."""

from __future__ import annotations

from typing import Any

from actorgraph._version import __version__
from actorgraph.graph import Node
from actorgraph.serving import protocol
from actorgraph.serving.errors import ServingError
from actorgraph.serving.model import ServedModel
from actorgraph.serving.server import Server


def _object(*optional: str, **fields: Any) -> dict[str, Any]:
    """Return the schema of an object with these fields and no others."""
    required = [name for name in fields if name not in optional]
    return {
        "type": "object", "properties": fields, "required": required,
        "additionalProperties": False,
    }  # fmt: skip


def _list(schema: Any) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def _is(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT, _BOOL, _COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
_SHAPE = _list({"type": "integer", "minimum": -1})
_PHASES = {name: _is("Duration") for name in ("compute_input", "compute_infer", "compute_output")}
_TOLD = _object(name=_TEXT, datatype=_TEXT, shape=_SHAPE)
_CONFIGURED = _object(name=_TEXT, data_type={"type": "string", "pattern": "^TYPE_"}, dims=_SHAPE)
_SCHEMAS = {
    "Error": _object("code", "node", error=_TEXT, code=_TEXT, node=_TEXT),
    "Server": _object(name=_TEXT, version=_TEXT, extensions=_list(_TEXT)),
    "Live": _object(live=_BOOL),
    "Ready": _object("live", "name", live=_BOOL, name=_TEXT, ready=_BOOL),
    "Model": _object(
        name=_TEXT, versions=_list(_TEXT), platform=_TEXT, inputs=_list(_TOLD), outputs=_list(_TOLD)
    ),
    "Config": _object(
        name=_TEXT, platform=_TEXT, backend=_TEXT, max_batch_size=_COUNT,
        input=_list(_CONFIGURED), output=_list(_CONFIGURED),
        parameters={"type": "object", "additionalProperties": _object(string_value=_TEXT)},
    ),
    "Settings": _object(server={"type": "object"}, models=_list({"type": "object"})),
    "Duration": _object(count=_COUNT, ns=_COUNT),
    "Statistics": _object(
        model_stats=_list(
            _object(
                name=_TEXT, version=_TEXT, last_inference=_COUNT, inference_count=_COUNT,
                execution_count=_COUNT,
                inference_stats=_object(
                    **{
                        name: _is("Duration")
                        for name in ("success", "fail", "queue", "cache_hit", "cache_miss")
                    },
                    **_PHASES,
                ),
                batch_stats=_list(_object(batch_size=_COUNT, **_PHASES)),
            )
        )
    ),
    "Answer": _object(
        "id", model_name=_TEXT, model_version=_TEXT, id=_TEXT,
        outputs=_list(
            _object(
                "data", "parameters", name=_TEXT, datatype=_TEXT, shape=_list(_COUNT),
                data={"type": "array"},
                parameters=_object(binary_data_size=_COUNT),
            )
        ),
    ),
    "Index": _list(
        _object(name=_TEXT, version=_TEXT, reason=_TEXT, state={"enum": ["READY", "UNAVAILABLE"]})
    ),
}  # fmt: skip
_OF_MODEL = {"": "Model", "/ready": "Ready", "/stats": "Statistics", "/config": "Config"}


def openapi(
    server: Server, root: str = "", *, repository: bool = False, metrics: bool = True
) -> dict[str, Any]:
    """Return the document for the current models; the flags are for routes that may be off."""
    paths: dict[str, Any] = {
        path: {"get": _operation(summary, schema)}
        for path, summary, schema in (
            ("/v2", "The server, and the extensions that it knows.", "Server"),
            ("/v2/health/live", "Whether the process can answer.", "Live"),
            ("/v2/health/ready", "Whether requests are taken.", "Ready"),
            ("/v2/models/stats", "Counts and times of all models.", "Statistics"),
            ("/metrics", "The same for Prometheus.", None),
            ("/config", "The configs of the server and its models, after defaults.", "Settings"),
        )
    }
    if not metrics:
        del paths["/metrics"]
    if repository:
        paths["/v2/repository/index"] = {"post": _operation("All models.", "Index")}
    for model in server.models:
        start = f"/v2/models/{model.name}/versions/{model.version}"
        for path, schema in _OF_MODEL.items():
            paths[start + path] = {"get": _operation(f"{schema} of {model.name}.", schema)}
        paths[f"{start}/infer"] = {"post": _asking(model, "Answer")}
        paths[f"{start}/infer_stream"] = {"post": _asking(model, None)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "actorgraph", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }


def _operation(summary: str, schema: str | None, **more: Any) -> dict[str, Any]:
    """Return an operation whose answer is JSON of a schema; None if it is not JSON."""
    answer: dict[str, Any] = {"description": "OK"}
    if schema is not None:
        answer["content"] = {"application/json": {"schema": _is(schema)}}
    content = {"application/json": {"schema": _is("Error")}}
    failed = {"description": "What was wrong.", "content": content}
    return {"summary": summary, "responses": {"200": answer, "default": failed}, **more}


def _asking(model: ServedModel, answer: str | None) -> dict[str, Any]:
    inputs = [_schema(name, node) for name, node in model.signature.inputs.items()]
    schema = {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "parameters": {"type": "object"},
            "inputs": {"type": "array", "prefixItems": inputs, "minItems": len(inputs)},
        },
    }
    content = {"application/json": {"schema": schema}}
    body = {"required": True, "content": content}
    return _operation(f"Ask {model.name}.", answer, requestBody=body)


def _schema(name: str, node: Node) -> dict[str, Any]:
    try:
        datatype = protocol.tensor(name, node)["datatype"]
    except ServingError:  # the protocol has no datatype for it
        datatype = node.dtype.name
    sizes = [{"const": dim} if isinstance(dim, int) else {"minimum": 0} for dim in node.dims]
    return {
        "type": "object",
        "required": ["name", "shape", "datatype"],
        "properties": {
            "name": {"const": name},
            "datatype": {"const": datatype},
            "shape": {"type": "array", "prefixItems": sizes, "minItems": len(sizes)},
            "data": {"type": "array"},
        },
    }
