"""Pictures of graphs: text, DOT, Mermaid and what Jupyter shows, with and without Graphviz."""

import re
import shutil
import subprocess
import sys

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


def put_program(folder, body):
    """Put a program named dot in a folder."""
    program = folder / "dot"
    program.write_text(f"#!{sys.executable}\n{body}\n")
    program.chmod(0o755)


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


def test_an_empty_graph_can_be_drawn():
    g = ag.Graph()

    assert str(g) == "graph 'graph' of 0 nodes"
    assert g.to_dot().splitlines()[-1] == "}"
    assert g.to_mermaid() == "flowchart TD"


def test_jupyter_draws_mermaid_itself_where_graphviz_is_missing(g, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert g._repr_mimebundle_() == {"text/plain": str(g), "text/vnd.mermaid": g.to_mermaid()}


def test_jupyter_shows_a_picture_where_graphviz_is_there(g, monkeypatch, tmp_path):
    put_program(
        tmp_path, "import sys; print('<svg>', sys.argv[1:], len(sys.stdin.read()), '</svg>')"
    )
    monkeypatch.setenv("PATH", str(tmp_path))

    bundle = g._repr_mimebundle_(include=None, exclude=None)

    assert bundle["text/plain"] == str(g)
    assert bundle["image/svg+xml"] == f"<svg> ['-Tsvg'] {len(g.to_dot())} </svg>\n"


@pytest.mark.parametrize(
    "body",
    ["raise SystemExit(1)", "import os; os.write(1, b'\\xff\\xfe')", "import os; os.abort()"],
)
def test_jupyter_shows_text_where_graphviz_is_broken(g, monkeypatch, tmp_path, body):
    put_program(tmp_path, body)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert set(g._repr_mimebundle_()) == {"text/plain", "text/vnd.mermaid"}


def test_jupyter_shows_text_where_dot_is_no_program(g, monkeypatch, tmp_path):
    (tmp_path / "dot").write_text("")
    (tmp_path / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert g._repr_mimebundle_()["text/plain"] == str(g)


def test_large_graphs_are_not_drawn(monkeypatch, tmp_path):
    put_program(tmp_path, "print('<svg/>')")
    monkeypatch.setenv("PATH", str(tmp_path))
    g = ag.Graph()
    for i in range(401):
        g.input(f"x{i}")

    assert list(g._repr_mimebundle_()) == ["text/plain"]


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_itself_can_read_the_dot(g):
    drawn = subprocess.run(
        ["dot", "-Tsvg"], input=g.to_dot(), capture_output=True, text=True, check=True
    )

    assert "<svg" in drawn.stdout
