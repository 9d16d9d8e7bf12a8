import json
import tracemalloc

import numpy as np
import pytest

import actorgraph as ag

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def forged(path, header, body=bytes(8), size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if size is None else size).to_bytes(8, "little") + text + body)
    return path


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ({"a": F32, "b": F32}, "bytes 0 to 8 of an array do not begin at 8"),
        ({"a": {**F32, "shape": [1 << 62]}}, "the shape"),
        ({"a": {**F32, "shape": [1 << 40]}}, "8 bytes for an array of float32"),
        ({"a": {**F32, "shape": [-2]}}, "the shape"),
        ({"a": {**F32, "shape": [True, 2]}}, "the shape"),
        ({"a": {**F32, "shape": [1] * 80}}, "the shape"),
        ({"a": {**F32, "shape": 2}}, "TypeError"),
        ({"a": {**F32, "dtype": "O"}}, "the dtype 'O'"),
        ({"a": {**F32, "dtype": ["F32"]}}, "TypeError"),
        ({"a": {**F32, "data_offsets": [0, 1 << 60]}}, "the file 8"),
        ({"a": {**F32, "data_offsets": [8, 0]}}, "do not begin"),
        ({"a": {**F32, "data_offsets": [0]}}, "ValueError"),
        ({}, "the arrays have 0 bytes, the file 8"),
        ({"a": F32, "__metadata__": {"a": "complex128"}}, "as 'complex128'"),
        ({"a": F32, "__metadata__": 5}, "AttributeError"),
        ([], "TypeError|AttributeError"),
        (b"\xff", "UnicodeDecodeError"),
        ("{}".encode("utf-16"), "UnicodeDecodeError"),
        (b"[" * 100_000, "RecursionError"),
    ],
)
def test_a_header_that_lies_raises(tmp_path, header, match):
    with pytest.raises(ag.GraphError, match=match):
        ag.io.read_arrays(forged(tmp_path / "file", header))


def test_a_header_that_names_more_than_there_is_takes_no_memory(tmp_path):
    one, other = (
        forged(tmp_path / "a", {"a": {**F32, "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}),
        forged(tmp_path / "b", {}, size=1 << 60),
    )
    tracemalloc.start()
    try:
        for path in (one, other):
            with pytest.raises(ag.GraphError, match="bytes"):
                ag.io.read_arrays(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_an_empty_file_raises(tmp_path):
    with pytest.raises(ag.GraphError, match="not a file of arrays"):
        ag.io.read_arrays(forged(tmp_path / "file", b"", b""))


@pytest.mark.oracle
def test_the_library_of_the_format_reads_what_is_written_and_writes_what_is_read(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    state = ag.nn.Sequential(ag.nn.Linear(3, 5), ag.nn.BatchNorm1d(5)).state_dict()
    state["odd"], state["transposed"] = np.int8([1, 2, 3]), np.arange(6.0).reshape(2, 3).T
    ag.io.write_arrays(tmp_path / "ours", state)
    theirs = safetensors.load_file(tmp_path / "ours")
    assert theirs.keys() == state.keys()
    assert all(np.array_equal(theirs[name], state[name]) for name in state)
    copies = {name: np.array(array, order="C") for name, array in state.items()}
    safetensors.save_file(copies, tmp_path / "theirs", metadata={"format": "np"})
    ours = ag.io.read_arrays(tmp_path / "theirs")
    assert all(np.array_equal(ours[name], state[name]) for name in state)
    assert all(array.flags.aligned and array.flags.writeable for array in ours.values())
