"""The C that our kernels are written in, run by Python: each line of the text itself.

It knows assignments, calls, indexing, comparisons, and a loop from one number to another.  Without
an inner loop all elements are computed at once by NumPy, whose bits the machines of the CPU have.
"""

import re

import numpy as np

import tests._cupy as stand_in

NAMES = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt}
TYPES = {"float": np.float32, "double": np.float64, "bool": np.bool_, "long long": np.int64}


def environment(kind):
    found = {f"__{letter}{name}_rn": function for name, function in NAMES.items()
             for letter in "fd"}  # fmt: skip
    for name in ("exp", "expm1", "log", "log1p", "tanh", "sin", "cos", "sinh", "cosh", "fabs"):
        found[name] = found[f"{name}f"] = getattr(np, name)
    return found | {"choose": np.where, "kind": kind}


def python_of(text):
    """Return the parameters, and the body as Python in lines with their depth."""
    whole = re.search(r"__global__ void kernel\((.*?)\) \{\n(.*)\n\}", text, re.DOTALL)
    parameters = [re.fullmatch(r"(?:const )?([a-z ]+?)(\*?) (\w+)", one).groups()
                  for one in whole[1].split(", ")]  # fmt: skip
    lines, depth = [], 0
    for line in whole[2].splitlines():
        line = line.strip()
        if line == "}":
            depth -= 1
        elif loop := re.fullmatch(r"for \(long long (\w) = (.*); \1 < (.*); .*\) \{", line):
            start = "0" if "blockIdx" in loop[2] else loop[2]
            lines.append((depth, f"for {loop[1]} in range({start}, {loop[3]}):"))
            depth += 1
        else:
            lines.append((depth, assignment(line)))
    assert depth == 0
    return parameters, lines


def assignment(line):
    target, value = re.fullmatch(r"(.*?) = (.*);", line).groups()
    value = re.sub(r"(\d+\.\d+(?:e[+-]\d+)?)f?\b", r"kind(\1)", value)
    return f"{target.split()[-1]} = {value}"


class RawKernel:
    def __init__(self, code, name, options=(), backend="nvrtc"):
        assert f"void {name}(" in code
        self.parameters, lines = python_of(code)
        kinds = [TYPES[kind] for kind, star, _ in self.parameters if star]
        self.kind = kinds[-1]
        if sum(line.startswith("for ") for _, line in lines) == 1:
            lines = [(0, "i = arange(n)"), *[(depth - 1, line) for depth, line in lines[1:]]]
        source = "\n".join("    " * depth + line for depth, line in lines)
        self.code = compile(source, "a kernel", "exec")

    def __call__(self, grid, block, args):
        assert len(args) == len(self.parameters)
        assert len(grid) == len(block) == 1
        assert grid[0] * block[0] >= 1
        for (kind, star, name), given in zip(self.parameters, args, strict=True):
            assert isinstance(given, stand_in.ndarray if star else np.generic), name
            assert given.dtype == TYPES[kind], (name, given.dtype, kind)
            assert not star or given.flags.c_contiguous, name
        count = args[-1]

        def run(*arrays):
            flat = [one.reshape(-1) for one in arrays]
            assert all(np.shares_memory(a, b) or not a.size
                       for a, b in zip(flat, arrays, strict=True))  # fmt: skip
            names = [name for _, star, name in self.parameters if star]
            given = dict(zip(names, flat, strict=True)) | {"n": count, "arange": np.arange}
            exec(self.code, environment(self.kind) | given)

        stand_in.world.kernels += 1
        stand_in.call(run, *args[:-1])
