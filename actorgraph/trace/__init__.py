"""Seeing what machines do: recordings of runs, and hooks for other tools."""

from actorgraph.instrument import Instrument
from actorgraph.trace.recorder import record
from actorgraph.trace.trace import Trace
from actorgraph.trace.using import use

__all__ = ["Instrument", "Trace", "record", "use"]
