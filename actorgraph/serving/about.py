"""What a server reports about itself and its models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from actorgraph import notebook
from actorgraph._version import __version__
from actorgraph.graph import Graph
from actorgraph.serving import protocol
from actorgraph.serving.config import json_fields
from actorgraph.serving.model import ServedModel
from actorgraph.serving.server import Server
from actorgraph.serving.statistics import Histogram, Phases

_EXTENSIONS = (
    "binary_tensor_data", "schedule_policy", "parameters", "statistics", "model_configuration",
)  # fmt: skip


def extensions(repository: bool) -> dict[str, Any]:
    """Return the protocol's metadata of the server."""
    names = [*_EXTENSIONS, *(["model_repository"] if repository else [])]
    return {"name": "actorgraph", "version": __version__, "extensions": names}


def configuration(model: ServedModel) -> dict[str, Any]:
    """Return the config after defaults, for the extension `model_configuration`."""
    signature = model.signature
    nodes = (*signature.inputs.values(), *signature.outputs.values())
    batched = signature.dim is not None
    # The protocol has the batch dim first, and leaves it out.
    batched = batched and all(str(node.dims[0]) == signature.dim for node in nodes)
    metadata = protocol.metadata(model, [])

    def tensors(key: str) -> list[dict[str, Any]]:
        return [
            {
                "name": tensor["name"],
                "data_type": f"TYPE_{tensor['datatype']}",
                "dims": tensor["shape"][1:] if batched else tensor["shape"],
            }
            for tensor in metadata[key]
        ]

    return {
        "name": model.name,
        "platform": metadata["platform"],
        "backend": "actorgraph",
        "max_batch_size": model.config.max_batch_size if batched else 0,
        "input": tensors("inputs"),
        "output": tensors("outputs"),
        "parameters": {
            key: {"string_value": str(one)} for key, one in json_fields(model.config).items()
        },
    }


def settings(server: Server) -> dict[str, Any]:
    """Return the configs of the server and its models, after defaults."""
    models = [
        {"name": model.name, "version": model.version, **json_fields(model.config)}
        for model in server.models
    ]
    return {"server": json_fields(server.config), "models": models}


def statistics(models: Iterable[ServedModel]) -> dict[str, Any]:
    """Return counts, and times in nanoseconds, for the extension `statistics`."""
    return {"model_stats": [_statistics(model) for model in models]}


def _statistics(model: ServedModel) -> dict[str, Any]:
    stats, durations = model.statistics, model.statistics.durations
    fails = [value for key, value in durations.items() if key != "ok"]
    batches = sorted(stats.batches.items())

    def computing(*phases: Phases) -> dict[str, Any]:
        runs = sum(phase.runs for phase in phases)
        return {
            part: _times(runs, sum(getattr(phase, part) for phase in phases))
            for part in ("compute_input", "compute_infer", "compute_output")
        }

    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(stats.last_s * 1e3),
        "inference_count": stats.counts["inferences"],
        "execution_count": stats.counts["executions"],
        "inference_stats": {
            "success": _total([durations["ok"]]),
            "fail": _total(fails),
            "queue": _total(list(stats.queue_waits.values())),
            **computing(*(phase for _, phase in batches)),
            "cache_hit": _times(0, 0.0),
            "cache_miss": _times(0, 0.0),
        },
        "batch_stats": [{"batch_size": rows, **computing(phase)} for rows, phase in batches],
    }


def _total(histograms: list[Histogram]) -> dict[str, int]:
    return _times(sum(one.count for one in histograms), sum(one.total for one in histograms))


def _times(count: int, spent_s: float) -> dict[str, int]:
    return {"count": count, "ns": int(spent_s * 1e9)}


_WORD = re.compile(r"[\w.\- ]+")
_MOST_DRAWN = 100  # nodes

# -- the page -----------------------------------------------------------------------------------

_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="refresh" content="2"><link rel="icon" href="data:,">
<title>actorgraph</title><style>
:root { color-scheme: light dark } body { font: 15px system-ui, sans-serif; margin: 2em }
table { border-collapse: collapse; margin: 1em 0 } caption { text-align: left; font-weight: 600 }
th, td { text-align: right; padding: .2em .8em; border-bottom: 1px solid #8885 }
th:first-child, td:first-child { text-align: left } pre { overflow: auto }
</style></head><body>"""


def page(server: Server) -> bytes:
    """Return the status page, which refreshes itself and needs no script and no network."""
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
    found = model.machine.busiest(1 << 20)
    rows = [(node, op, f"{spent_s * 1e3:,.1f}", f"{turns:,}") for node, op, spent_s, turns in found]
    table = notebook.table(f"Busiest of {model.name}", ("node", "op", "ms", "turns"), rows[:5])
    graph = next(iter(model.signature.outputs.values())).graph
    # The drawing is cached; a style sheet beside it marks the nodes that are busy now.
    all_s = sum(spent_s for _, _, spent_s, _ in found) or 1.0
    busy = "".join(
        f'[data-node="{node}"] > rect {{ fill: rgb(255 120 0 / {spent_s / all_s:.2f}) !important }}'
        for node, _, spent_s, _ in found if _WORD.fullmatch(node)
    )  # fmt: skip
    drawn = f"<style>{busy}</style>{_drawn(graph)}"
    return f"{table}<details open><summary>graph</summary>{drawn}</details>"


@lru_cache(maxsize=16)
def _drawn(graph: Graph) -> str:
    if len(graph.nodes) > _MOST_DRAWN or find_spec("grandalf") is None:
        return notebook.verbatim(str(graph))
    return graph.to_svg()
