"""Drawing of a node as a nested expression, for tests of rewriting."""

from actorgraph.op import CONSTANT


def draw(node):
    """Return ``op(inputs)`` in full: leaves by name, constants by value, axes where there are."""
    if node.op is CONSTANT:
        return f"{node.attrs['value'].item():g}"
    if node.is_leaf:
        return node.name
    more = [f"{name}={node.attrs[name]}" for name in ("axis", "keepdims") if name in node.attrs]
    return f"{node.op.name}({', '.join([*map(draw, node.inputs), *more])})"
