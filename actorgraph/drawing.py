"""Text, DOT and Mermaid pictures of a graph; none of them needs a drawing program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from actorgraph.errors import printable

__all__ = ["dot", "mermaid", "mimebundle", "text"]

_MAX_DRAWN = 400
_SHAPES = {"input": ("[/", "/]"), "parameter": ("[(", ")]"), "constant": ("([", "])")}


class _Drawable(Protocol):
    name: str

    @property
    def nodes(self) -> Sequence[Any]: ...


def text(graph: _Drawable) -> str:
    """Return one line a node: name, op with inputs, type."""
    lines = [f"graph {graph.name!r} of {len(graph.nodes)} nodes"]
    for node in graph.nodes:
        inputs = ", ".join(printable(part.name) for part in node.inputs)
        attrs = [f"{k}={v!r}" for k, v in node.attrs.items() if k != "value"]
        call = f"{_op(node)}({', '.join([inputs, *attrs] if inputs else attrs)})"
        lines.append(f"  {printable(node.name)} = {call} : {node.type}")
    return "\n".join(lines)


def dot(graph: _Drawable) -> str:
    """Return the graph in DOT, operands above consumers."""
    shapes = {"input": "parallelogram", "parameter": "cylinder", "constant": "ellipse"}
    lines = [f'digraph "{_escaped(printable(graph.name))}" {{', "  node [shape=box];"]
    for node in graph.nodes:
        label = _escaped(f"{printable(node.name)}\n{_op(node)}: {node.type}")
        shape = shapes.get(node.op.name, "box")
        lines.append(f'  n{node.id} [label="{label}", shape={shape}];')
        lines += [f"  n{part.id} -> n{node.id};" for part in node.inputs]
    return "\n".join([*lines, "}"])


def mermaid(graph: _Drawable) -> str:
    """Return the graph as a Mermaid flow chart."""
    lines = ["flowchart TD"]
    for node in graph.nodes:
        left, right = _SHAPES.get(node.op.name, ("[", "]"))
        label = f"{printable(node.name)}: {node.type}".replace('"', "#quot;")
        lines.append(f'  n{node.id}{left}"{label}"{right}')
        lines += [f"  n{part.id} --> n{node.id}" for part in node.inputs]
    return "\n".join(lines)


def mimebundle(graph: _Drawable) -> dict[str, str]:
    """Return what Jupyter shows: text, and a picture.

    JupyterLab and Notebook draw Mermaid themselves, offline; Graphviz draws for the others.
    """
    import shutil
    import subprocess

    bundle = {"text/plain": text(graph)}
    if len(graph.nodes) <= _MAX_DRAWN:
        bundle["text/vnd.mermaid"] = mermaid(graph)
    program = shutil.which("dot")
    if program is not None and len(graph.nodes) <= _MAX_DRAWN:
        try:
            drawn = subprocess.run(
                [program, "-Tsvg"], input=dot(graph), capture_output=True, timeout=10, check=True,
                encoding="utf-8", errors="replace",
            )  # fmt: skip
            if "<svg" in drawn.stdout:
                bundle["image/svg+xml"] = drawn.stdout
        except (OSError, subprocess.SubprocessError):
            pass  # A broken Graphviz must not break the notebook: the text says the same.
    return bundle


def _op(node: Any) -> str:
    return printable(node.op.name)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
