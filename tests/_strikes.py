"""Ctrl-C at every moment at which Python handles signals, one after the other."""

import _thread
import dis
import os
import signal
import sys

SOAK = os.environ.get("ACTORGRAPH_SOAK") == "1"
SAMPLED = 60
"""Moments where only some are tried."""


class _Sigint(int):
    """SIGINT, pending from a look at `now` on.

    A look runs C only, and the tracer that takes it comes to none of the instructions at which
    Python handles signals: so what is traced meets it, at its own next such instruction.
    """

    now = property(_thread.interrupt_main)


_SIGINT = _Sigint(signal.SIGINT)
_HERE = __file__


def _is_moment(frame):
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return "CALL" in name or "BACKWARD" in name or "RESUME" in name


def _traced(action, at=None):
    """Call `action`, with SIGINT pending from its moment number `at` on; return how many it had."""
    passed = 0

    def look(frame, event, _):
        nonlocal passed
        if event == "opcode" and _is_moment(frame):
            if passed == at:
                sys.settrace(None)
                frame.f_trace = None
                _SIGINT.now  # noqa: B018 - see there
                return None
            passed += 1
        return look

    def enter(frame, event, _):
        if frame.f_code.co_filename == _HERE:
            return None
        frame.f_trace_opcodes = True
        return look

    sys.settrace(enter)
    try:
        action()
    finally:
        sys.settrace(None)
    return passed


def strikes(action, ready=None, times=5000):
    """Yield after each call of `action` that Ctrl-C has struck, each time at a later moment.

    The moments are those of the calling thread, wherever it is: in the package, in NumPy, in
    Python's library.  Before each call comes one of `ready`, by default `action` itself, which
    nothing strikes: what was given up is there again.  With ``ACTORGRAPH_SOAK=1`` all moments are
    tried, until there were so many `times`, else `SAMPLED` ones once.
    """
    ready = ready or action
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ready()
        moments = _traced(action)
        sampled = range(0, moments, max(1, moments // SAMPLED))
        missed = 0
        for number in range(max(times, moments)) if SOAK else sampled:
            ready()
            try:
                _traced(action, number % moments)
                for _ in range(2):
                    pass  # it may have come at the very end
                missed += 1  # not all calls have as many moments
            except KeyboardInterrupt:
                pass
            except RuntimeError as error:
                # Python's own start of a thread may end so.
                if not isinstance(error.__context__, KeyboardInterrupt):
                    raise
            yield number % moments
        assert missed <= number // 10, f"{missed} of {number + 1} calls were not struck"
    finally:
        signal.signal(signal.SIGINT, before)
