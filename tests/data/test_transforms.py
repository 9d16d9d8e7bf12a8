"""Transforms change images, and what is random in them follows from seed, epoch and sample."""

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each

Image = pytest.importorskip("PIL.Image")
T = ag.data.transforms
IMAGE = np.arange(12 * 10 * 3, dtype="uint8").reshape(12, 10, 3)
RANDOM = {
    "crop": T.RandomCrop((6, 5), padding=2),
    "resized": T.RandomResizedCrop(8),
    "horizontal": T.RandomHorizontalFlip(),
    "vertical": T.RandomVerticalFlip(p=0.7),
    "rotation": T.RandomRotation(30),
}


def array(image):
    return np.asarray(image)


def test_sizes_and_contents_are_those_asked_for():
    assert array(T.CenterCrop((4, 6))(IMAGE)).tolist() == IMAGE[4:8, 2:8].tolist()
    assert array(T.CenterCrop(14)(IMAGE))[1:13, 2:12].tolist() == IMAGE.tolist()
    assert array(T.Resize((3, 7))(IMAGE)).shape == (3, 7, 3)
    assert array(T.Resize(20)(IMAGE)).shape == (24, 20, 3)
    assert array(T.Resize(5)(np.full((12, 10), 9, "uint8"))).tolist() == [[9] * 5] * 6
    assert array(T.RandomHorizontalFlip(1.0)(IMAGE)).tolist() == IMAGE[:, ::-1].tolist()
    assert array(T.RandomVerticalFlip(1.0)(IMAGE)).tolist() == IMAGE[::-1].tolist()
    assert array(T.RandomRotation(0.0)(IMAGE)).tolist() == IMAGE.tolist()
    assert array(T.RandomCrop((12, 10))(IMAGE)).tolist() == IMAGE.tolist()
    assert array(T.RandomResizedCrop((4, 7), ratio=(9, 10))(IMAGE)).shape == (4, 7, 3)


def test_arrays_have_channels_first_and_are_normalised_by_channel():
    found = T.ToArray()(Image.fromarray(IMAGE))
    np.testing.assert_array_equal(found, IMAGE.transpose(2, 0, 1) / np.float32(255))
    assert found.dtype == np.float32
    assert T.ToArray()(IMAGE[:, :, 0]).shape == (1, 12, 10)
    normal = T.Normalize([0.1, 0.2, 0.3], (1.0, 2.0, 4.0))(found)
    np.testing.assert_allclose(normal[2], (found[2] - 0.3) / 4, rtol=1e-6)


@each("name", RANDOM)
def test_what_is_drawn_follows_from_seed_epoch_and_sample_for_any_workers(name):
    prepared = T.Compose([RANDOM[name], T.ToArray()])
    samples = [(IMAGE, number) for number in range(8)]

    def epochs(workers, seed=0):
        loader = ag.data.DataLoader(samples, 2, workers=workers, transform=prepared, seed=seed)
        return [[images.tobytes() for images, _ in loader] for _ in range(2)]

    found = epochs(0)
    assert found == epochs(3)
    assert found != epochs(0, seed=1)
    assert found[0] != found[1]
    assert len({*found[0]}) > 1


def test_what_is_no_image_is_refused_with_what_to_do():
    for transform, image, told in (
        (T.Resize(3), np.ones((4, 4)), "ToArray comes after"),
        (T.ToArray(), np.ones(4), "2 or 3 axes"),
        (T.RandomCrop(20), IMAGE, "no part of 20 x 20.*padding="),
    ):
        with pytest.raises(ag.GraphError, match=told):
            transform(image)
    with pytest.raises(ValueError, match="size"):
        T.Resize(0)
