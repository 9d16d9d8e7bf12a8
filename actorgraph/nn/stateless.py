"""`Stateless`: a function without parameters as a module; `layers` has a class for each of many."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar

from actorgraph.errors import GraphTypeError
from actorgraph.keywords import advice
from actorgraph.nn._sized import Layer

_RENAMED = {"axis": "dim"}


class Stateless(Layer):
    """Base of modules that apply one function.

    A subclass says ``of=function`` and how many ``inputs`` it is called on.
    Further parameters of the function are settings; one named ``training`` is the module's mode.

    Examples
    --------
    >>> import actorgraph as ag
    >>> class Scale(ag.nn.Stateless, of=lambda x, factor=2.0: x * factor):
    ...     "Its input times a factor."
    >>> Scale(factor=3.0)
    Scale(factor=3.0)
    """

    _of: ClassVar[Callable[..., Any]]
    _names: ClassVar[dict[str, str]]  # names of settings: the function's, and ours
    _trains: ClassVar[bool]
    __signature__: ClassVar[Signature]

    def __init_subclass__(cls, of: Callable[..., Any] | None = None, inputs: int = 1) -> None:
        super().__init_subclass__()
        if of is None:
            return
        known = [*signature(of).parameters.values()][inputs:]
        cls._of, cls._trains = staticmethod(of), any(one.name == "training" for one in known)
        known = [one for one in known if one.name != "training"]
        cls._names = {one.name: _RENAMED.get(one.name, one.name) for one in known}
        cls.__signature__ = Signature(
            [
                Parameter(
                    cls._names[one.name], Parameter.POSITIONAL_OR_KEYWORD,
                    default=one.default
                )
                for one in known
            ]
        )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            name, known = type(self).__name__, self.__signature__
            advised = advice(name, known.parameters, kwargs)
            raise advised or GraphTypeError(f"{name}{known}: {error}") from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            setattr(self, name, value)

    def forward(self, *args: Any) -> Any:
        """Apply the function to the arguments and the settings."""
        chosen = {name: getattr(self, ours) for name, ours in self._names.items()}
        if self._trains:
            chosen["training"] = self.training
        return type(self)._of(*args, **chosen)
