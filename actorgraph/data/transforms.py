"""Transforms of images, named as in torchvision: for samples of a dataset, or for one image.

An image is one of Pillow's (the extra ``image``), or an array of bytes, (height, width) or (height,
width, channels).  Of a tuple the first entry is the image, and the others are unchanged.  Random
transforms draw by the loader's seed, the epoch and the number of the sample, so they are the same
for every number of workers and after a resume.  Outside a loader they are unseeded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from math import exp, log, sqrt
from typing import Any

import numpy as np

from actorgraph.data._draws import random
from actorgraph.errors import GraphError, GraphTypeError, shown
from actorgraph.keywords import Answering
from actorgraph.options import positive, real

__all__ = [
    "CenterCrop", "Compose", "Normalize", "RandomCrop", "RandomHorizontalFlip",
    "RandomResizedCrop", "RandomRotation", "RandomVerticalFlip", "Resize", "ToArray",
]  # fmt: skip
__dir__ = __all__.copy

Size = int | tuple[int, int]


class _Transform(Answering):
    """A function of samples that changes their image."""

    @abstractmethod
    def image(self, image: Any) -> Any:
        """Return the transformed image."""

    def __call__(self, sample: Any) -> Any:
        if isinstance(sample, tuple):
            return self.image(sample[0]), *sample[1:]
        return self.image(sample)

    def __repr__(self) -> str:
        settings = [f"{name}={value!r}" for name, value in vars(self).items()]
        return f"{type(self).__name__}({', '.join(settings)})"


class Compose(_Transform):
    """Several transforms, in order.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> T = ag.data.transforms
    >>> prepared = T.Compose([T.CenterCrop(4), T.ToArray(), T.Normalize(0.5, 0.5)])
    >>> image, label = prepared((np.zeros((6, 8, 3), "uint8"), 7))
    >>> image.shape, float(image.max()), label
    ((3, 4, 4), -1.0, 7)
    """

    def __init__(self, transforms: Iterable[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def image(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class ToArray(_Transform):
    """Convert to floats from 0 to 1, as (channels, height, width), for layers.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.data.transforms.ToArray()(np.full((2, 3), 255, "uint8")).tolist()
    [[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]]
    """

    def image(self, image: Any) -> Any:
        array = np.asarray(image)
        array = array[:, :, None] if array.ndim == 2 else array
        if array.ndim != 3:
            raise GraphTypeError(f"an image has 2 or 3 axes, got {shown(image)}")
        scale = 255.0 if array.dtype == np.uint8 else 1.0
        return np.ascontiguousarray(array.transpose(2, 0, 1), "float32") / np.float32(scale)


class Normalize(_Transform):
    """``(x - mean) / std`` for each channel of (channels, height, width).

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.data.transforms.Normalize(0.5, 0.5)(np.ones((1, 1, 2))).tolist()
    [[[1.0, 1.0]]]
    """

    def __init__(self, mean: Any, std: Any) -> None:
        self.mean, self.std = mean, std

    def image(self, image: Any) -> Any:
        mean, std = [np.asarray(one, "float32").reshape(-1, 1, 1) for one in (self.mean, self.std)]
        return (image - mean) / std


class Resize(_Transform):
    """Resize to (height, width), or to a length of the shorter side.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.data.transforms.Resize(4)(np.zeros((6, 8), "uint8")).size
    (5, 4)
    """

    def __init__(self, size: Size) -> None:
        self.size = _sides(size) if isinstance(size, tuple) else positive("size", size)

    def image(self, image: Any) -> Any:
        image = _pillow(image)
        if isinstance(self.size, tuple):
            return image.resize(self.size[::-1], _BILINEAR)
        share = self.size / min(image.size)
        return image.resize([max(round(side * share), 1) for side in image.size], _BILINEAR)


class CenterCrop(_Transform):
    """The middle of an image, padded with black if the image is smaller.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.data.transforms.CenterCrop((2, 4))(np.zeros((6, 8), "uint8")).size
    (4, 2)
    """

    def __init__(self, size: Size) -> None:
        self.size = _sides(size)

    def image(self, image: Any) -> Any:
        image, (height, width) = _pillow(image), self.size
        left, top = (image.width - width) // 2, (image.height - height) // 2
        return image.crop((left, top, left + width, top + height))


class RandomCrop(_Transform):
    """A random part of an image, after `padding` with black on all sides.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.data.transforms.RandomCrop(4, padding=1)(np.zeros((6, 8), "uint8")).size
    (4, 4)
    """

    def __init__(self, size: Size, padding: int = 0) -> None:
        self.size, self.padding = _sides(size), padding

    def image(self, image: Any) -> Any:
        image, (height, width), pad = _pillow(image), self.size, self.padding
        spare = [image.width + 2 * pad - width, image.height + 2 * pad - height]
        if min(spare) < 0:
            raise GraphError(
                f"an image of {image.height} x {image.width} has no part of {height} x {width}; "
                "resize it first, or give padding="
            )
        left, top = [random().randint(one + 1) - pad for one in spare]
        return image.crop((left, top, left + width, top + height))


class RandomResizedCrop(_Transform):
    """A random part of an image, of random area and ratio of sides, resized to `size`.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.data.transforms.RandomResizedCrop(4)(np.zeros((6, 8), "uint8")).size
    (4, 4)
    """

    def __init__(
        self, size: Size, scale: tuple[float, float] = (0.08, 1.0), ratio: Any = (3 / 4, 4 / 3)
    ) -> None:
        self.size, self.scale, self.ratio = _sides(size), scale, ratio

    def image(self, image: Any) -> Any:
        image, draws = _pillow(image), random()
        low, high = map(log, self.ratio)
        width, height = image.size
        for _ in range(10):
            area = image.width * image.height * draws.uniform(*self.scale)
            ratio = exp(draws.uniform(low, high))
            sides = round(sqrt(area * ratio)), round(sqrt(area / ratio))
            if 0 < sides[0] <= image.width and 0 < sides[1] <= image.height:
                width, height = sides
                break
        left, top = draws.randint(image.width - width + 1), draws.randint(image.height - height + 1)
        box = left, top, left + width, top + height
        return image.resize(self.size[::-1], _BILINEAR, box)


class _Flip(_Transform):
    axis = 0

    def __init__(self, p: float = 0.5) -> None:
        self.p = real("p", p)

    def image(self, image: Any) -> Any:
        image = _pillow(image)
        return image.transpose(self.axis) if random().random_sample() < self.p else image


class RandomHorizontalFlip(_Flip):
    """Swap left and right, with a probability.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.data.transforms.RandomHorizontalFlip(1.0)(np.array([[1, 2]], "uint8")).getpixel((0, 0))
    2
    """


class RandomVerticalFlip(_Flip):
    """Swap top and bottom, with a probability.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.data.transforms.RandomVerticalFlip(1.0)(np.array([[1], [2]], "uint8")).getpixel((0, 0))
    2
    """

    axis = 1


class RandomRotation(_Transform):
    """Rotate by a random angle in [-degrees, degrees]; missing corners are black.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.data.transforms.RandomRotation(10)(np.zeros((6, 8), "uint8")).size
    (8, 6)
    """

    def __init__(self, degrees: float) -> None:
        self.degrees = real("degrees", degrees)

    def image(self, image: Any) -> Any:
        angle = random().uniform(-self.degrees, self.degrees)
        return _pillow(image).rotate(angle, _BILINEAR)


_BILINEAR = 2
"""Pillow's code for it."""


def _sides(size: Any) -> tuple[int, int]:
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    return positive("height", height), positive("width", width)


def _pillow(image: Any) -> Any:
    if hasattr(image, "rotate"):
        return image
    try:
        from PIL import Image
    except ImportError as error:
        raise GraphError("transforms need Pillow: pip install 'actorgraph[image]'") from error
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        raise GraphTypeError(
            f"expected an image of Pillow's or an array of uint8, got {shown(image)}; "
            "ToArray comes after transforms of images"
        )
    return Image.fromarray(image[:, :, 0] if image.shape[2:] == (1,) else image)
