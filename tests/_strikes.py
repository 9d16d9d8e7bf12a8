"""Ctrl-C at every moment at which Python handles signals, one after the other."""

import _thread
import dis
import gc
import signal
import sys
import weakref

from tests._soak import SOAK

SAMPLED = 60
"""Moments where only some are tried."""

SETTLED = 20
"""Calls after which a machine has compiled, measured and cut what it will."""


class _Sigint(int):
    """SIGINT, pending from a look at `now` on.

    A look runs C only, and the tracer that takes it comes to none of the instructions at which
    Python handles signals: so what is traced meets it, at its own next such instruction.
    """

    now = property(_thread.interrupt_main)


_SIGINT = _Sigint(signal.SIGINT)
_UNTRACED = {__file__, weakref.__file__}
"""Files without moments: what strikes while garbage is finalised ends nothing, and is lost."""
_FORGETS = sys.version_info[:2] == (3, 12)
"""This Python crashes where a thread without a tracer resumes a generator that was traced: its
frame still asks for opcodes, and `sys_trace_instruction_func` calls what is not there."""


def _is_moment(frame):
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return "CALL" in name or "BACKWARD" in name or "RESUME" in name


def _traced(action, at=None):
    """Call `action`, with SIGINT pending from its moment number `at` on; return how many it had."""
    passed = 0

    def look(frame, event, _):
        nonlocal passed
        if event == "return" and _FORGETS:
            frame.f_trace_opcodes = False
        if event == "opcode" and _is_moment(frame):
            if passed == at:
                sys.settrace(None)
                frame.f_trace = None
                while _FORGETS and frame:
                    frame.f_trace_opcodes, frame = False, frame.f_back
                _SIGINT.now  # noqa: B018 - see there
                return None
            passed += 1
        return look

    def enter(frame, event, _):
        if frame.f_code.co_filename in _UNTRACED:
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
    tried, again and again until so many `times` were struck, else `SAMPLED` ones once.
    """
    ready = ready or action
    # What is there would be looked through at every `gc.collect()`; the caller closes its machines,
    # as none that is there now is ever collected.
    gc.freeze()
    callbacks = gc.callbacks[:]  # Hypothesis has one: what strikes there ends nothing
    gc.callbacks.clear()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for _ in range(SETTLED):
            ready()
            action()
        for _ in range(2):  # Python 3.12 and 3.13 tell of no opcodes at first
            ready()
            moments = _traced(action)
        assert moments
        step = 1 if SOAK else max(1, moments // SAMPLED)
        number = struck = missed = 0
        while struck < max(times, moments) if SOAK else number < moments:
            ready()
            try:
                passed = _traced(action, number % moments)
                for _ in range(2):
                    pass  # it may have come at the very end
                missed += 1
                moments = max(1, min(moments, passed))  # not all calls have as many
            except KeyboardInterrupt:
                struck += 1
            except RuntimeError as error:
                # Python's own start of a thread may end so.
                if not isinstance(error.__context__, KeyboardInterrupt):
                    raise
                struck += 1
            yield number % moments
            number += step
            assert missed <= 20 + struck // 10, f"{missed} calls were not struck, {struck} were"
    finally:
        gc.callbacks[:] = callbacks
        signal.signal(signal.SIGINT, before)
