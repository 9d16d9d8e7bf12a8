"""Compiling loops with llvmlite, in the background, with a cache on disk.

The `Background` of the process compiles them.  Until then a kernel uses ordinary kernels and reads
`CompiledLoop.call`, which is set once, in one assignment.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, final

from actorgraph.devices import native
from actorgraph.devices.background import BACKGROUND
from actorgraph.devices.structs import OFFSETS
from actorgraph.devices.walk_text import ELEMENTS, field
from actorgraph.jit.loops import LEVELS, Level, Loops

_T = TypeVar("_T", int, str)


@final
class CompiledLoop:
    """The result of compiling loops.

    ``call(arrays, id(np.ndarray))`` of a tuple returns whether it has computed all.  It has not if
    an item is no C-contiguous array, if sizes do not fit, or if there are no elements.  `call` is
    None until the loops are compiled, and stays None if that fails with an `error`; `done` is set
    afterwards.  `address` is that of the loops themselves, once there is a call.
    """

    __slots__ = ("_engine", "address", "call", "done", "error", "loops")

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.call: Callable[[tuple[Any, ...], int], int] | None = None
        self.address = 0
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._engine: Any = None

    def make(self) -> None:
        """Compile the loops."""
        text = "\n".join([self.loops.text, _called(self.loops), _SIZE])
        self._engine = native.engine(text, passes=True)
        self.address = self._engine.get_function_address("loops")
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.py_object, ctypes.c_size_t)
        self.call = kind(self._engine.get_function_address("call"))


@final
class Compiler:
    """The compiled loops of a process; `make` compiles one, by default with llvmlite."""

    def __init__(self, make: Callable[[CompiledLoop], None] = CompiledLoop.make) -> None:
        self._make = make
        self._known: dict[Loops, CompiledLoop] = {}
        self._warned = False

    def request(self, loops: Loops) -> CompiledLoop:
        """Return the result of compiling loops, which are compiled once; does not block."""
        new = CompiledLoop(loops)
        compiled = self._known.setdefault(loops, new)
        if compiled is new:
            BACKGROUND.submit(partial(self._made, compiled), keep=compiled)
        else:
            BACKGROUND.resume()
        return compiled

    def _made(self, loop: CompiledLoop) -> None:
        try:
            self._make(loop)
        except BaseException as error:  # noqa: BLE001 - ordinary kernels stay in use
            loop.error = error
            self._warn(error)
        loop.done.set()

    def _warn(self, error: BaseException) -> None:
        if not self._warned:
            self._warned = True
            BACKGROUND.warn(
                "a fused step could not be compiled and runs its ordinary kernels; others of this "
                "process that fail say nothing", error,
            )  # fmt: skip


COMPILER = Compiler()
"""The compiler of this process."""

_LEGAL = 0x1 | 0x100
"""Required flags of arrays: C-contiguous and aligned."""

_SIZE = f"""\
define internal i64 @size(ptr %array, i64 %ndarray) {{
entry:
{field("array", "type", 8, "i64", "i8")}
  %is.array = icmp eq i64 %type, %ndarray
  br i1 %is.array, label %known, label %none
known:
{field("array", "flags", OFFSETS["flags"], "i32", "i8")}
  %legal = and i32 %flags, {_LEGAL}
  %is.legal = icmp eq i32 %legal, {_LEGAL}
{field("array", "nd", OFFSETS["nd"], "i32", "i8")}
{field("array", "dimensions", OFFSETS["dimensions"], "ptr", "i8")}
{ELEMENTS}
  %found = select i1 %is.legal, i64 %elements, i64 -1
  ret i64 %found
none:
  ret i64 -1
}}
"""
"""A function that returns the number of elements of an array, -1 if it is not as required."""


def size_of(level: Level, elements: _T, rows: _T, cols: _T, one: _T) -> _T:
    """Return the number of elements of arrays of a level, chosen among these."""
    return {"element": elements, "row": rows, "whole": one, "late": one}.get(level, cols)


def _called(loops: Loops) -> str:
    """Return a function ``call`` of a tuple of arrays, which checks their sizes first."""
    levels, full = loops.levels, loops.levels.index("element")
    looked = [k for k, level in enumerate(levels) if level in LEVELS]
    text = [
        "define i64 @call(ptr %tuple, i64 %ndarray) {",
        "entry:",
        f"  %args = alloca [{len(levels)} x ptr]",
        *native.items_text(len(levels)), *native.stored_text(len(levels)),
    ]  # fmt: skip
    text += [f"  %s{k} = call i64 @size(ptr %o{k}, i64 %ndarray)" for k in looked]
    text += [f"  %any = icmp sgt i64 %s{full}, 0", "  br i1 %any, label %measure, label %no",
             "measure:"]  # fmt: skip
    if loops.rows:
        text += [
            field(f"o{full}", "nd", OFFSETS["nd"], "i32", "i8"),
            "  %last = sub i32 %nd, 1",
            field(f"o{full}", "dimensions", OFFSETS["dimensions"], "ptr", "i8"),
            "  %cols.at = getelementptr i64, ptr %dimensions, i32 %last",
            "  %cols = load i64, ptr %cols.at",
        ]
    else:
        text.append(f"  %cols = add i64 %s{full}, 0")
    text += [f"  %rows = sdiv i64 %s{full}, %cols", "  %ok.first = add i1 0, 1"]
    before = "%ok.first"
    for k in looked:
        size = size_of(levels[k], f"%s{full}", "%rows", "%cols", "1")
        text += [f"  %is{k} = icmp eq i64 %s{k}, {size}",
                 f"  %ok{k} = and i1 {before}, %is{k}"]  # fmt: skip
        before = f"%ok{k}"
    text += [
        f"  br i1 {before}, label %go, label %no", "go:",
        "  %done = call i1 @loops(ptr %args, i64 %rows, i64 %cols)",
        "  %found = zext i1 %done to i64", "  ret i64 %found", "no:", "  ret i64 0", "}",
    ]  # fmt: skip
    return "\n".join(text)
