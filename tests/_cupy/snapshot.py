"""Write `snapshot.json`: the names, parameters and ufunc loops of the CuPy that is installed.

No GPU is needed, only the wheel: ``python tests/_cupy/snapshot.py``.  The stand-in refuses what the
snapshot does not have, so a new release of CuPy shows as a difference of that file.
"""

import inspect
import json
import re
import warnings
from pathlib import Path

WHERE = Path(__file__).with_name("snapshot.json")


def parameters(function, name):
    """Return parameters as Python writes them, all defaults as 0; None where nothing tells them."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return of_docstring((function.__doc__ or "").split("\n")[0], name)
    return listed((one.name, one.kind, one.default is not one.empty) for one in found)


def of_docstring(line, name):
    """Return the parameters that the first line of a compiled function's docstring has."""
    found = re.match(rf"[\w.]*{name}\((.*?)\)(?: ->.*)?$", line)
    if found is None:
        return None
    kind, listing = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for part in found[1].split(", ") if found[1] else ():
        name, _, default = part.partition("=")
        name = name.split(":")[0].split()[-1]
        if name.startswith("**"):
            listing.append((name[2:], inspect.Parameter.VAR_KEYWORD, False))
        elif name.startswith("*"):
            kind = inspect.Parameter.KEYWORD_ONLY
            if name != "*":
                listing.append((name[1:], inspect.Parameter.VAR_POSITIONAL, False))
        else:
            listing.append((name, kind, bool(default)))
    return listed(listing)


def listed(found):
    made = [
        inspect.Parameter(name, kind, **({"default": 0} if has_default else {}))
        for name, kind, has_default in found
    ]
    return str(inspect.Signature(made))[1:-1]


def of_module(module, prefix=""):
    functions, ufuncs = {}, {}
    for name in sorted(dir(module)):
        found = getattr(module, name)
        if name.startswith("_") or inspect.ismodule(found) or isinstance(found, type):
            continue
        if hasattr(found, "types"):
            ufuncs[prefix + name] = " ".join(sorted({*found.types}))
        elif callable(found):
            functions[prefix + name] = parameters(found, name)
    return functions, ufuncs


def snapshot():
    warnings.simplefilter("ignore")
    import cupy
    import cupyx.scipy.special

    functions, ufuncs = {}, {}
    modules = {"": cupy, "linalg.": cupy.linalg, "fft.": cupy.fft,
               "special.": cupyx.scipy.special}  # fmt: skip
    for prefix, module in modules.items():
        some, others = of_module(module, prefix)
        functions |= some
        ufuncs |= others
    methods = {}
    for name in sorted(dir(cupy.ndarray)):
        if not name.startswith("_"):
            found = getattr(cupy.ndarray, name)
            methods[name] = parameters(found, name) if callable(found) else None
    for found in methods, functions:
        for name, listing in found.items():
            if found is methods and listing is not None:
                found[name] = listing.removeprefix("self").removeprefix(", ")
    names = [
        name for name in sorted(dir(cupy))
        if not name.startswith("_") and not inspect.ismodule(getattr(cupy, name))
    ]  # fmt: skip
    rest = [name for name in names if name not in functions and name not in ufuncs]
    return {
        "version": cupy.__version__,
        "ufuncs": ufuncs,
        "functions": functions,
        "methods": methods,
        "others": " ".join(rest),
    }


if __name__ == "__main__":
    WHERE.write_text(json.dumps(snapshot(), indent=0) + "\n", encoding="utf-8")
