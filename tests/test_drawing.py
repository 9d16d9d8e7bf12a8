"""Pictures of graphs: text, DOT, Mermaid, SVG and what Jupyter shows, with and without grandalf."""

import itertools
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import actorgraph as ag


@pytest.fixture
def g():
    g = ag.Graph("net")
    x = g.input("x", ("batch", 2), "float32")
    w = g.parameter("w", np.ones((2, 3), "float32"))
    (ag.ops.matmul(x, w) * 2.0).sum(1).named("out")
    return g


def test_text_has_one_line_a_node_with_op_inputs_attributes_and_type(g):
    assert str(g).splitlines() == [
        "graph 'net' of 6 nodes",
        "  x = input() : float32[batch, 2]",
        "  w = parameter() : float32[2, 3]",
        "  matmul_2 = matmul(x, w) : float32[batch, 3]",
        "  constant_3 = constant() : float32[]",
        "  multiply_4 = multiply(matmul_2, constant_3) : float32[batch, 3]",
        "  out = sum(multiply_4, axis=(1,), keepdims=False) : float32[batch]",
    ]


def test_dot_names_every_node_and_edge(g):
    dot = g.to_dot()
    assert dot.startswith('digraph "net" {')
    assert dot.endswith("}")
    for node in g:
        assert f'n{node.id} [label="{node.name}\\n{node.op.name}: {node.type}"' in dot
        for part in node.inputs:
            assert f"n{part.id} -> n{node.id};" in dot
    assert dot.count("->") == sum(len(node.inputs) for node in g)


def test_mermaid_names_every_node_and_edge(g):
    lines = g.to_mermaid().splitlines()
    assert lines[0] == "flowchart TD"
    assert '  n0[/"x: float32[batch, 2]"/]' in lines
    assert "  n0 --> n2" in lines
    assert len(lines) == 1 + len(g) + sum(len(node.inputs) for node in g)


def test_an_operand_used_twice_has_two_edges():
    g = ag.Graph()
    x = g.input("x")
    x * x
    assert g.to_dot().count("n0 -> n1;") == 2
    assert g.to_mermaid().count("n0 --> n1") == 2


@pytest.mark.parametrize("name", ['a "quoted" name', "back\\slash", "two\nlines", "sum[0] -> {x}"])
def test_names_cannot_break_a_picture(name):
    g = ag.Graph(name)
    g.input(name)
    label = re.compile(r'"(?:[^"\\\n]|\\.)*"')
    for line in g.to_dot().splitlines():
        assert '"' not in label.sub("", line)
    assert [line.count('"') for line in g.to_mermaid().splitlines()] == [0, 2]
    assert len(boxes(g.to_svg())) == 1


def test_an_empty_graph_can_be_drawn():
    g = ag.Graph()
    assert str(g) == "graph 'graph' of 0 nodes"
    assert g.to_dot().splitlines()[-1] == "}"
    assert g.to_mermaid() == "flowchart TD"
    assert boxes(g.to_svg()) == {}


def boxes(picture):
    """Return left, top, right and bottom of each node of an SVG, by the node's name."""
    found = {}

    def walk(element, x, y):
        place = re.fullmatch(r"translate\((.+),(.+)\)", element.get("transform", "translate(0,0)"))
        x, y = x + float(place[1]), y + float(place[2])
        title, box = (element.find(f"{{*}}{tag}") for tag in ("title", "rect"))
        if box is not None:
            width, height = float(box.get("width")), float(box.get("height"))
            name = re.match(r"(.*?) \w+: ", title.text)[1]
            found[name] = (x, y, x + width, y + height)
        for child in element:
            walk(child, x, y)

    walk(ElementTree.fromstring(picture), 0.0, 0.0)
    return found


def overlap(one, other):
    return all(one[i] < other[i + 2] and other[i] < one[i + 2] for i in (0, 1))


def test_svg_puts_operands_above_consumers_and_no_box_over_another(g):
    g.input("alone")
    drawn = boxes(g.to_svg())
    assert set(drawn) == {node.name for node in g}
    assert not any(overlap(*pair) for pair in itertools.combinations(drawn.values(), 2))
    assert all(drawn[part.name][3] < drawn[node.name][1] for node in g for part in node.inputs)
    assert g.to_svg().count("marker-end") == sum(len(node.inputs) for node in g)


def test_svg_draws_the_body_of_a_loop_inside_its_node():
    g = ag.Graph()
    ag.scan(lambda c, x: (c + x, c), g.input("start"), g.input("xs", (3,)))
    drawn = boxes(g.to_svg())
    (loop,) = [box for name, box in drawn.items() if name.startswith("loop")]
    for name in ("carry_0", "x_0"):
        assert loop[0] < drawn[name][0] < drawn[name][2] < loop[2]
        assert loop[1] < drawn[name][1] < drawn[name][3] < loop[3]


def test_svg_needs_grandalf_and_says_so(g, monkeypatch):
    monkeypatch.setitem(sys.modules, "grandalf", None)
    with pytest.raises(ag.GraphError, match=r"pip install 'actorgraph\[draw\]'"):
        g.to_svg()


def test_jupyter_gets_text_mermaid_and_svg(g):
    assert g._repr_mimebundle_(include=None, exclude=None) == {
        "text/plain": str(g), "text/vnd.mermaid": g.to_mermaid(), "image/svg+xml": g.to_svg(),
    }  # fmt: skip


def test_jupyter_gets_text_and_mermaid_where_grandalf_is_missing(g, monkeypatch):
    monkeypatch.setattr("actorgraph.drawing.find_spec", lambda name: None)
    assert g._repr_mimebundle_() == {"text/plain": str(g), "text/vnd.mermaid": g.to_mermaid()}


def test_large_graphs_are_not_drawn():
    g = ag.Graph()
    for i in range(101):
        g.input(f"x{i}")
    assert list(g._repr_mimebundle_()) == ["text/plain", "text/vnd.mermaid"]
    for i in range(300):
        g.input(f"y{i}")
    assert list(g._repr_mimebundle_()) == ["text/plain"]


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_itself_can_read_the_dot(g):
    drawn = subprocess.run(
        ["dot", "-Tsvg"], input=g.to_dot(), capture_output=True, text=True, check=True
    )
    assert "<svg" in drawn.stdout
