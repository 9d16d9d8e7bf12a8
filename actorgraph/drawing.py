"""Text, DOT, Mermaid and SVG pictures of a graph, made without a drawing program.

grandalf, an extra in pure Python, computes the layout of the SVG.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from actorgraph.errors import GraphError, printable

_MAX_DRAWN = 400
_MAX_PLACED = 100  # nodes of an SVG in a notebook: some 0.3 s
_SHAPES = {"input": ("[/", "/]"), "parameter": ("[(", ")]"), "constant": ("([", "])")}
_CHARACTER, _LINE, _MARGIN = 7.3, 16, 8
_LONGEST = 48
_XML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})
_FILLS = {"input": "#dbeafe", "parameter": "#fde68a", "constant": "#f3f4f6"}
_STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#111827}"
    "rect{stroke:#6b7280;fill:#fff}path{stroke:#6b7280;fill:none}"
)


class _Drawable(Protocol):
    name: str

    @property
    def nodes(self) -> Sequence[Any]: ...


def text(graph: _Drawable) -> str:
    """Return one line per node: name, op with inputs, type; bodies are indented below."""
    lines = [f"graph {graph.name!r} of {len(graph.nodes)} nodes"]
    return "\n".join([*lines, *_lines(graph.nodes, "  ")])


def _lines(nodes: Sequence[Any], indent: str) -> Iterator[str]:
    for node in nodes:
        inputs = ", ".join(printable(part.name) for part in node.inputs)
        bodies = _bodies(node)
        attrs = [
            f"{k}={str(v) if bodies else repr(v)}" for k, v in node.attrs.items() if k != "value"
        ]
        call = f"{_op(node)}({', '.join([inputs, *attrs] if inputs else attrs)})"
        yield f"{indent}{printable(node.name)} = {call} : {node.type}"
        for title, body in bodies:
            operands = ", ".join([printable(part.name) for part in body.inputs])
            yield f"{indent}  {title}({operands}):"
            yield from _lines(body.nodes, indent + "    ")
            results = ", ".join([printable(part.name) for part in body.results])
            yield f"{indent}    return {results}"


def _bodies(node: Any) -> list[tuple[str, Any]]:
    """Return the graphs among the attributes of a node, each with its title."""
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
    """Return the representations for Jupyter: text, Mermaid (JupyterLab draws it), and SVG."""
    bundle = {"text/plain": text(graph)}
    if len(graph.nodes) <= _MAX_DRAWN:
        bundle["text/vnd.mermaid"] = mermaid(graph)
    if len(graph.nodes) <= _MAX_PLACED and find_spec("grandalf") is not None:
        bundle["image/svg+xml"] = svg(graph)
    return bundle


def svg(graph: _Drawable) -> str:
    """Return the graph as a self-contained SVG picture.

    Raises
    ------
    GraphError
        grandalf is not installed.
    """
    width, height, drawn = _drawn(graph.nodes, [])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">'
        f"<title>{printable(graph.name).translate(_XML)}</title><style>{_STYLE}</style>"
        '<defs><marker id="tip" markerWidth="8" markerHeight="6" refX="8" refY="3" orient="auto">'
        '<path d="M0,0L8,3L0,6" style="fill:#6b7280"/></marker></defs>'
        f"{drawn}</svg>"
    )


class _Box:
    """The picture of a node: its size, and SVG with the origin in the upper left corner.

    grandalf reads `w` and `h`, and sets `xy`, the centre.
    """

    def __init__(self, node: Any) -> None:
        texts = [printable(node.name), f"{printable(node.op.name)}: {node.type}"]
        parts = [
            text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"
            for text in texts
        ]
        lines = [_text(part, number) for number, part in enumerate(parts)]
        wide = max(map(len, parts)) * _CHARACTER + 2 * _MARGIN
        top: float = 2 * _LINE + _MARGIN
        for title, body in _bodies(node):
            inner_width, inner_height, inner = _drawn(body.nodes, body.inputs)
            lines.append(_text(title, (top - 4) / _LINE))
            lines.append(f'<g transform="translate({_MARGIN},{top + _LINE})">{inner}</g>')
            wide = max(wide, inner_width + 2 * _MARGIN)
            top += _LINE + inner_height + _MARGIN
        self.w, self.h = wide, top
        self.xy = (0.0, 0.0)
        self._name = texts[0].translate(_XML)
        fill = _FILLS.get(node.op.name)
        style = f' style="fill:{fill}"' if fill else ""
        self._svg = (
            f"<title>{' '.join(texts).translate(_XML)}</title>"
            f'<rect width="{self.w:.0f}" height="{self.h:.0f}" rx="4"{style}/>{"".join(lines)}'
        )

    def at(self, left: float, top: float) -> str:
        """Return the box at its place in the layout, whose upper left corner is (left, top)."""
        x, y = self.xy[0] - self.w / 2 - left, self.xy[1] - self.h / 2 - top
        return f'<g data-node="{self._name}" transform="translate({x:.1f},{y:.1f})">{self._svg}</g>'


def _text(text: str, line: float) -> str:
    return f'<text x="{_MARGIN}" y="{(line + 1) * _LINE:.0f}">{text.translate(_XML)}</text>'


def _drawn(nodes: Sequence[Any], inputs: Sequence[Any]) -> tuple[float, float, str]:
    """Return width, height and SVG of nodes and the inputs they are fed by."""
    try:
        from grandalf import graphs
        from grandalf.layouts import SugiyamaLayout
        from grandalf.routing import EdgeViewer, route_with_lines
    except ImportError:
        raise GraphError(
            "a picture in SVG needs grandalf: pip install 'actorgraph[draw]'"
        ) from None

    numbers = {node: number for number, node in enumerate(dict.fromkeys([*inputs, *nodes]))}
    vertices = [graphs.Vertex(node) for node in numbers]
    for vertex in vertices:
        vertex.view = _Box(vertex.data)
    ends = dict.fromkeys((part, node) for node in nodes for part in node.inputs)
    edges = [
        graphs.Edge(vertices[numbers[part]], vertices[numbers[node]])
        for part, node in ends if part in numbers
    ]  # fmt: skip
    for edge in edges:
        edge.view = EdgeViewer()
    right, bottom, drawn = 0.0, 0.0, []
    for part in graphs.Graph(vertices, edges).C:
        # grandalf has edges in a set; with our lists, equal graphs give equal pictures.
        component = graphs.graph_core(
            [vertex for vertex in vertices if vertex.c is part],
            [edge for edge in edges if edge.v[0].c is part],
        )
        layout = SugiyamaLayout(component)
        layout.route_edge = route_with_lines
        layout.init_all(optimize=True)
        layout.draw(6)
        views = [vertex.view for vertex in component.V()]
        lines = [edge.view._pts for edge in component.E()]
        left = min([*[v.xy[0] - v.w / 2 for v in views], *[x for line in lines for x, _ in line]])
        top = min([v.xy[1] - v.h / 2 for v in views])
        left -= right + _MARGIN
        top -= _MARGIN
        for line in lines:
            points = "L".join(f"{x - left:.1f},{y - top:.1f}" for x, y in line)
            drawn.append(f'<path d="M{points}" marker-end="url(#tip)"/>')
        drawn += [view.at(left, top) for view in views]
        right = max([*[v.xy[0] + v.w / 2 for v in views], *[x for line in lines for x, _ in line]])
        right -= left
        bottom = max(bottom, *[v.xy[1] + v.h / 2 - top for v in views])
    return right + _MARGIN, bottom + _MARGIN, "".join(drawn)


def _op(node: Any) -> str:
    return printable(node.op.name)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
