"""Observing machines: recordings of runs, a live view, and hooks for other tools."""

from actorgraph.keywords import all_answering
from actorgraph.machines.instrument import Instrument
from actorgraph.trace.holding import memory
from actorgraph.trace.live import top
from actorgraph.trace.serving import ask, serve
from actorgraph.trace.trace import Trace
from actorgraph.trace.using import record, use

__all__ = ["Instrument", "Trace", "ask", "memory", "record", "serve", "top", "use"]
__dir__ = __all__.copy

all_answering(globals())
