"""Stand-ins for what a machine returns: a parameter node and its Dual."""

from dataclasses import dataclass

from actorgraph.store import Store


class FakeParameter:
    """A trainable leaf. As with real nodes, `==` builds something instead of comparing."""

    def __init__(self, name, value):
        self.name = name
        self.held = Store().hold(value)

    @property
    def value(self):
        return self.held.value

    def __eq__(self, other):
        raise AssertionError("a solver must not compare nodes with ==")

    __hash__ = object.__hash__

    def __bool__(self):
        raise AssertionError("a solver must not ask for the truth of a node")


@dataclass
class FakeDual:
    value: object
    grad: object
    node: object = None


def dual_of(parameter, grad):
    return FakeDual(parameter.value, grad, parameter)
