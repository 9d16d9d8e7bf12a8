"""What actors send: Duals of a run."""

from actorgraph.dual import Dual
from actorgraph.node_actor import Message


def test_a_message_is_a_dual_that_can_be_read_and_printed_like_any_other():
    message = Message(2.0, None)
    assert isinstance(message, Dual)
    assert (message.value, message.grad, message.tangent, message.node) == (2.0, None, None, None)
    assert repr(message) == "<Dual value=2.0>"
