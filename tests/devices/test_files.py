"""Files of the cache directory: written whole, or not at all."""

import pytest

from actorgraph.devices.files import write_whole


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    place = tmp_path / "code.o"
    place.mkdir()
    with pytest.raises(OSError, match="code.o"):
        write_whole(str(place), b"new")
    assert list(tmp_path.iterdir()) == [place]
