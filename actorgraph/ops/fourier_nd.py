"""Fourier transforms built of others: over several axes, and of signals with real spectra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from actorgraph.errors import ShapeError
from actorgraph.graph import Node
from actorgraph.operands import naming_itself
from actorgraph.ops.broadcasting import conj
from actorgraph.ops.fourier import (
    OTHER_NORM,
    checked,
    fftn,
    ifftn,
    places_and_sizes,
)
from actorgraph.ops.fourier_real import irfft, rfft
from actorgraph.ops.rearranging import roll
from actorgraph.ops.shaping import one_axis

__all__ = [
    "fft2", "fftshift", "hfft", "hfft2", "hfftn", "ifft2", "ifftshift", "ihfft", "ihfft2", "ihfftn",
    "irfft2", "irfftn", "rfft2", "rfftn",
]  # fmt: skip

_T = TypeVar("_T", bound=Callable[..., Node])
_PARAMETERS = """

    Parameters
    ----------
    x : node
        {takes}
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int, optional
        {axes}
    norm : {{"backward", "ortho", "forward"}}, optional
        As in `fft`.

    Returns
    -------
    Node
        {gives}

    Raises
    ------
    GraphTypeError
        The dtype does not suit, or there is no such norm.
    ShapeError
        An axis is given twice or does not exist, or there are no points along it.
    """
_ALL = "Default: all, or as many of the last ones as `s` has entries."
_TWO = "The last two by default."


def _described(takes: str, gives: str, axes: str = _ALL) -> Callable[[_T], _T]:
    def describe(function: _T) -> _T:
        function.__doc__ = f"{function.__doc__}" + _PARAMETERS.format(
            takes=takes, gives=gives, axes=axes
        )
        return cast(_T, naming_itself(function))

    return describe


def _split(x: Node, s: Any, axes: Any, what: str) -> tuple[Any, Any, int, Any]:
    """Return the axes and sizes but for the last, and the last."""
    places, sizes = places_and_sizes(x, s, axes, what)
    if not places:
        raise ShapeError(f"{what} takes at least one axis")
    return places[:-1], sizes[:-1], places[-1], sizes[-1]


@_described("Float.", "Complex; of the last axis ``n // 2 + 1`` entries.")
def rfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Transform real signals over several axes, as ``numpy.fft.rfftn``: half of the spectrum."""
    places, sizes, last, size = _split(x, s, axes, "rfftn")
    half = rfft(x, size, last, norm)
    return fftn(half, sizes, places, norm) if places else half


@_described("Complex or float.", "Float; of the last axis by default twice the entries less 2.")
def irfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Undo `rfftn`, as ``numpy.fft.irfftn``."""
    places, sizes, last, size = _split(x, s, axes, "irfftn")
    return irfft(ifftn(x, sizes, places, norm) if places else x, size, last, norm)


@_described("Complex or float.", "Float; of the last axis by default twice the entries less 2.")
def hfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Transform signals with real spectra, given by half, as ``torch.fft.hfftn``."""
    return irfftn(conj(x), s, axes, OTHER_NORM[checked(x, norm, "hfftn")])


@_described("Float.", "Complex; of the last axis ``n // 2 + 1`` entries.")
def ihfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Undo `hfftn`, as ``torch.fft.ihfftn``."""
    return conj(rfftn(x, s, axes, OTHER_NORM[checked(x, norm, "ihfftn")]))


@naming_itself
def hfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Transform signals with a real spectrum, given by half, as ``numpy.fft.hfft``.

    Parameters and errors are those of `irfft`.
    """
    return irfft(conj(x), n, axis, OTHER_NORM[checked(x, norm, "hfft")])


@naming_itself
def ihfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Undo `hfft`, as ``numpy.fft.ihfft``; parameters and errors are those of `rfft`."""
    return conj(rfft(x, n, axis, OTHER_NORM[checked(x, norm, "ihfft")]))


def _last_two(over_axes: Any, takes: str, gives: str) -> Any:
    name = over_axes.__name__.replace("n", "2")

    def transform(x: Node, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Node:
        result: Node = over_axes(x, s, axes, norm)
        return result

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = (
        f"Transform over the last two axes by `{over_axes.__name__}`, as ``numpy.fft`` names it."
    )
    return _described(takes, gives, _TWO)(transform)


_ANY = "Float or complex."
fft2 = _last_two(fftn, _ANY, "Complex.")
ifft2 = _last_two(ifftn, _ANY, "Complex.")
rfft2 = _last_two(rfftn, "Float.", "Complex.")
irfft2 = _last_two(irfftn, _ANY, "Float.")
hfft2 = _last_two(hfftn, _ANY, "Float.")
ihfft2 = _last_two(ihfftn, "Float.", "Complex.")


def _shifted(x: Node, axes: Any, back: bool, what: str) -> Node:
    given = range(x.ndim) if axes is None else axes if isinstance(axes, tuple) else (axes,)
    places = tuple(one_axis(place, x.ndim, what) for place in given)
    sizes = [x.dims[place] for place in places]
    if not all(isinstance(size, int) for size in sizes):
        raise ShapeError(f"{what}: the dims of {x!r} have to be known ints")
    return roll(x, [-(size // 2) if back else size // 2 for size in sizes], places)


def fftshift(x: Node, axes: Any = None) -> Node:
    """Put the frequency 0 into the middle, as ``numpy.fft.fftshift``."""
    return _shifted(x, axes, False, "fftshift")


def ifftshift(x: Node, axes: Any = None) -> Node:
    """Undo `fftshift`, as ``numpy.fft.ifftshift``."""
    return _shifted(x, axes, True, "ifftshift")
