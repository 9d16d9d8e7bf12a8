"""Text, DOT and Mermaid pictures of a graph; none of them needs a drawing program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """Return one line a node: name, op with inputs, type; bodies below their node, indented."""
    lines = [f"graph {graph.name!r} of {len(graph.nodes)} nodes"]
    return "\n".join([*lines, *_lines(graph.nodes, "  ")])


def _lines(nodes: Sequence[Any], indent: str) -> Iterator[str]:
    for node in nodes:
        inputs = ", ".join(printable(part.name) for part in node.inputs)
        bodies = _bodies(node)
        told = {k: v for k, v in node.attrs.items() if k != "value"}
        attrs = [f"{k}={str(v) if bodies else repr(v)}" for k, v in told.items()]
        call = f"{_op(node)}({', '.join([inputs, *attrs] if inputs else attrs)})"
        yield f"{indent}{printable(node.name)} = {call} : {node.type}"
        for title, body in bodies:
            given = ", ".join([printable(part.name) for part in body.inputs])
            yield f"{indent}  {title}({given}):"
            yield from _lines(body.nodes, indent + "    ")
            results = ", ".join([printable(part.name) for part in body.results])
            yield f"{indent}    return {results}"


def _bodies(node: Any) -> list[tuple[str, Any]]:
    """Return the graphs among the attributes of a node, each with what it is called."""
    return [one for value in node.attrs.values() for one in getattr(value, "titles", ())]


def dot(graph: _Drawable) -> str:
    """Return the graph in DOT, operands above consumers."""
    shapes = {"input": "parallelogram", "parameter": "cylinder", "constant": "ellipse"}
    lines = [f'digraph "{_escaped(printable(graph.name))}" {{', "  node [shape=box];"]

    def draw(node: Any, key: str, indent: str) -> None:
        label = _escaped(f"{printable(node.name)}\n{_op(node)}: {node.type}")
        shape = shapes.get(node.op.name, "box")
        lines.append(f'{indent}{key}{node.id} [label="{label}", shape={shape}];')
        for number, (title, body) in enumerate(_bodies(node)):
            inner = f"{key}{node.id}_{number}_"
            lines.append(f"{indent}subgraph cluster_{inner} {{")
            lines.append(f'{indent}  label="{_escaped(f"{title} of {printable(node.name)}")}";')
            for one in body.inputs:
                label = _escaped(f"{printable(one.name)}: {one.type}")
                place = f'{inner}{one.id} [label="{label}", shape=parallelogram]'
                lines.append(f"{indent}  {place};")
            for one in body.nodes:
                draw(one, inner, indent + "  ")
                lines.extend([f"{indent}  {inner}{p.id} -> {inner}{one.id};" for p in one.inputs])
            lines.append(f"{indent}}}")
            ends = dict.fromkeys([f"{inner}{one.id} -> {key}{node.id}" for one in body.results])
            lines.extend([f"{indent}{end} [style=dashed];" for end in ends])

    for node in graph.nodes:
        draw(node, "n", "  ")
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
