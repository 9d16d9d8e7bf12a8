"""Seeing what machines do: recordings of runs, a live view, and hooks for other tools."""

from actorgraph.instrument import Instrument
from actorgraph.trace.live import top
from actorgraph.trace.recorder import record
from actorgraph.trace.serving import ask, serve
from actorgraph.trace.trace import Trace
from actorgraph.trace.using import use

__all__ = ["Instrument", "Trace", "ask", "record", "serve", "top", "use"]
