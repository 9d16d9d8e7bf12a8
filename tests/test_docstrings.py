"""Methods say what they do, themselves or by what they override."""

import importlib
import inspect
from types import FunctionType

from tests.test_architecture import every_module


@every_module
def test_every_public_method_has_a_docstring_or_that_of_the_method_that_it_overrides(module):
    def is_defined_there(name, value):
        for within in ("fget", "func", "__func__"):
            value = getattr(value, within, value)
        return name[0] != "_" and isinstance(value, FunctionType) and value.__name__ == name

    bare = [
        f"{cls.__name__}.{name}"
        for cls in vars(importlib.import_module(module)).values()
        if inspect.isclass(cls) and cls.__module__ == module and cls.__name__[0] != "_"
        for name, value in vars(cls).items()
        if is_defined_there(name, value)
        if not any(getattr(vars(one).get(name), "__doc__", None) for one in cls.__mro__)
    ]
    assert bare == []
