"""What a server tells of itself and its models, beside their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from actorgraph import notebook
from actorgraph._version import __version__
from actorgraph.graph import Node
from actorgraph.serving import protocol
from actorgraph.serving.errors import ServingError
from actorgraph.serving.model import ServedModel
from actorgraph.serving.server import Server

__all__ = ["configuration", "extensions", "openapi", "page", "statistics"]

_EXTENSIONS = (
    "binary_tensor_data", "schedule_policy", "parameters", "statistics", "model_configuration",
)  # fmt: skip


def extensions(repository: bool) -> dict[str, Any]:
    """Return what the protocol tells of the server."""
    found = [*_EXTENSIONS, *(["model_repository"] if repository else [])]
    return {"name": "actorgraph", "version": __version__, "extensions": found}


def configuration(model: ServedModel) -> dict[str, Any]:
    """Return the extension `model_configuration`: the config after defaults."""
    signature = model.signature
    nodes = (*signature.inputs.values(), *signature.outputs.values())
    batched = signature.dim is not None
    # The protocol's batch dim is the first, and left out.
    batched = batched and all(str(node.dims[0]) == signature.dim for node in nodes)
    told = protocol.metadata(model, [])

    def tensors(key: str) -> list[dict[str, Any]]:
        return [
            {
                "name": one["name"],
                "data_type": f"TYPE_{one['datatype']}",
                "dims": one["shape"][1:] if batched else one["shape"],
            }
            for one in told[key]
        ]

    settings = asdict(model.config)
    return {
        "name": model.name,
        "platform": told["platform"],
        "backend": "actorgraph",
        "max_batch_size": model.config.max_batch_size if batched else 0,
        "input": tensors("inputs"),
        "output": tensors("outputs"),
        "parameters": {key: {"string_value": str(value)} for key, value in settings.items()},
    }


def statistics(models: Iterable[ServedModel]) -> dict[str, Any]:
    """Return the extension `statistics`: counts, and times in nanoseconds."""
    return {"model_stats": [_statistics(model) for model in models]}


def _statistics(model: ServedModel) -> dict[str, Any]:
    found, durations = model.statistics, model.statistics.durations
    fails = [value for key, value in durations.items() if key != "ok"]
    batches = sorted(found.batches.items())
    phases = [phase for _, phase in batches]
    runs = sum(phase.runs for phase in phases)

    def compute(part: str) -> dict[str, int]:
        return _times(runs, sum(getattr(phase, part) for phase in phases))

    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(found.last_s * 1e3),
        "inference_count": found.counts["inferences"],
        "execution_count": found.counts["executions"],
        "inference_stats": {
            "success": _times(durations["ok"].count, durations["ok"].total),
            "fail": _times(sum(one.count for one in fails), sum(one.total for one in fails)),
            "queue": _times(found.waits.count, found.waits.total),
            "compute_input": compute("joining_s"),
            "compute_infer": compute("running_s"),
            "compute_output": compute("splitting_s"),
            "cache_hit": _times(0, 0.0),
            "cache_miss": _times(0, 0.0),
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": _times(phase.runs, phase.joining_s),
                "compute_infer": _times(phase.runs, phase.running_s),
                "compute_output": _times(phase.runs, phase.splitting_s),
            }
            for rows, phase in batches
        ],
    }


def _times(count: int, spent_s: float) -> dict[str, int]:
    return {"count": count, "ns": int(spent_s * 1e9)}


# -- OpenAPI ------------------------------------------------------------------------------------


def openapi(server: Server, root: str = "") -> dict[str, Any]:
    """Return the OpenAPI document of what the server serves."""
    paths: dict[str, Any] = {
        path: {"get": _operation(told)}
        for path, told in (
            ("/v2", "The server, and the extensions that it knows."),
            ("/v2/health/live", "Whether the process can answer."),
            ("/v2/health/ready", "Whether requests are taken."),
            ("/v2/models/stats", "Counts and times of all models."),
            ("/metrics", "The same for Prometheus."),
        )
    }
    for model in server.models:
        start = f"/v2/models/{model.name}/versions/{model.version}"
        paths[start] = {"get": _operation("Inputs and outputs.")}
        for word in ("ready", "stats", "config"):
            paths[f"{start}/{word}"] = {"get": _operation(f"The model's {word}.")}
        for word in ("infer", "infer_stream"):
            paths[f"{start}/{word}"] = {"post": _asking(model)}
    errors = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "actorgraph", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {"schemas": {"Error": errors}},
    }


def _operation(told: str, **more: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    failed = {"description": "What was wrong.", "content": content}
    return {"summary": told, "responses": {"200": {"description": "OK"}, "default": failed}, **more}


def _asking(model: ServedModel) -> dict[str, Any]:
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
    return _operation(f"Ask {model.name}.", requestBody=body)


def _schema(name: str, node: Node) -> dict[str, Any]:
    try:
        datatype = protocol.tensor(name, node)["datatype"]
    except ServingError:  # the protocol has no word for it
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


# -- the page -----------------------------------------------------------------------------------

_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="refresh" content="2"><title>actorgraph</title><style>
:root { color-scheme: light dark } body { font: 15px system-ui, sans-serif; margin: 2em }
table { border-collapse: collapse; margin: 1em 0 } caption { text-align: left; font-weight: 600 }
th, td { text-align: right; padding: .2em .8em; border-bottom: 1px solid #8885 }
th:first-child, td:first-child { text-align: left } pre { overflow: auto }
</style></head><body>"""


def page(server: Server) -> bytes:
    """Return the status page: it needs no script and no network, and asks again by itself."""
    state = "ready" if server.ready else "not ready"
    rows = [_row(model) for model in server.models]
    head = (
        "model", "running", "waiting", "ok", "failed", "rejected", "cancelled", "late",
        "rows a run", "p50 ms", "p99 ms",
    )  # fmt: skip
    parts = [_HEAD, f"<h1>actorgraph {__version__}: {state}</h1>"]
    parts.append(notebook.table("Models", head, rows))
    parts += map(_busiest, server.models)
    return "".join([*parts, "</body></html>"]).encode()


def _row(model: ServedModel) -> list[str]:
    counts: Mapping[str, int] = model.counts
    ok, sizes = model.statistics.durations["ok"], model.statistics.sizes
    return [
        f"{model.name} {model.version}",
        f"{model.inflight} / {model.config.max_inflight}",
        f"{model.queued} / {model.config.max_queued}",
        *(f"{counts[outcome]:,}" for outcome in model.statistics.durations),
        f"{sizes.total / max(sizes.count, 1):.1f}",
        *(f"{ok.quantile(share) * 1e3:.3g}" for share in (0.5, 0.99)),
    ]


def _busiest(model: ServedModel) -> str:
    rows = [
        (node, op, f"{spent_s * 1e3:,.1f}", f"{turns:,}")
        for node, op, spent_s, turns in model.machine.busiest()
    ]
    graph = next(iter(model.signature.outputs.values())).graph
    drawn = notebook.verbatim(str(graph))
    table = notebook.table(f"Busiest of {model.name}", ("node", "op", "ms", "turns"), rows)
    return f"{table}<details><summary>graph</summary>{drawn}</details>"
