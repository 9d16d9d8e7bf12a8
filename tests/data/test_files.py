"""Folders of images and tables are datasets."""

import sys

import numpy as np
import pytest

import actorgraph as ag

TABLE = "length,width,kind,count\n1,2.5,b,7\n3,4,a,8\n5,6,b,9\n"


def test_a_folder_of_folders_has_images_of_classes(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, shade in (("owl", 9), ("finch", 200)):
        (tmp_path / name).mkdir()
        for number in range(2):
            made = image.fromarray(np.full((4, 5), shade + number, "uint8"))
            made.save(tmp_path / name / f"{number}.png")
        (tmp_path / name / "notes.txt").write_text("no image")
    dataset = ag.data.from_folder(tmp_path, ag.data.transforms.ToArray())
    assert dataset.classes == ["finch", "owl"]
    ((images, labels),) = ag.data.DataLoader(dataset, 4, workers=2)
    assert images.shape == (4, 3, 4, 5)
    assert labels.tolist() == [0, 0, 1, 1]
    assert (images[:, 0, 0, 0] * 255).round().tolist() == [200, 201, 9, 10]
    assert ag.data.from_folder(tmp_path)[0][0].size == (5, 4)
    (tmp_path / "finch" / "0.png").write_bytes(b"broken")
    with pytest.raises(ag.GraphError, match="sample 0 failed"):
        next(iter(ag.data.DataLoader(dataset)))
    for wrong, told in ((tmp_path / "owl", "no folder with images"), ("nowhere", "no folder")):
        with pytest.raises(ag.GraphError, match=told):
            ag.data.from_folder(wrong)


@pytest.mark.parametrize("reader", ["pandas", "pyarrow", "numpy"])
def test_a_table_is_features_and_a_target(tmp_path, monkeypatch, reader):
    pytest.importorskip(reader)
    for preferred in {"pandas": (), "pyarrow": ("pandas",), "numpy": ("pandas", "pyarrow")}[reader]:
        monkeypatch.setitem(sys.modules, preferred, None)
    file = tmp_path / "table.csv"
    file.write_text(TABLE)
    dataset = ag.data.from_csv(file, target="kind")
    assert [one.tolist() for one in dataset.arrays] == [
        [[1, 2.5, 7], [3, 4, 8], [5, 6, 9]], [1, 0, 1]]  # fmt: skip
    (counts,) = ag.data.from_csv(file, columns=["count"]).arrays
    assert counts.dtype == np.float32
    assert ag.data.from_csv(file, "count", columns=["width"]).arrays[1].tolist() == [7, 8, 9]
    with pytest.raises(ag.GraphError, match="no column 'lenght'; did you mean 'length'"):
        ag.data.from_csv(file, "lenght")
    with pytest.raises(ag.GraphError, match="not of numbers"):
        ag.data.from_csv(file)
