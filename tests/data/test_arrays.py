import numpy as np
import pytest

from chainrule.data.arrays import check_range, open_array


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0, 4), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_mapped_as_it_was_saved(tmp_path, shape, dtype, order):
    array = np.asarray(np.arange(np.prod(shape)).reshape(shape), dtype=dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    found = open_array(tmp_path / "a.npy")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array)


def changed(content: bytes, old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    assert old in content
    return content.replace(old, new)


DAMAGE = {
    "empty": lambda c: b"",
    "cut in the header": lambda c: c[:40],
    "cut in the data": lambda c: c[:-1],
    "longer": lambda c: c + b"\0",
    "another magic": lambda c: b"PK\x03\x04" + c[4:],
    "a version of the future": lambda c: c[:6] + b"\x09" + c[7:],
    "a length beyond the file": lambda c: c[:8] + b"\xff\xff" + c[10:],
    "no Python": lambda c: changed(c, b"{'descr'", b"{{descr'"),
    "nested": lambda c: c[:10] + b"(" * 118 + c[128:],
    "an endless shape": lambda c: changed(c, b"(6,), }   ", b"(6**99,)} "),
    "a huge shape": lambda c: changed(c, b"(6,), }             ", b"(999999999999999,)} "),
    "a negative shape": lambda c: changed(c, b"(6,), }", b"(-6,),}"),
    "no shape": lambda c: changed(c, b"'shape'", b"'spahe'"),
    "objects": lambda c: changed(c, b"<i8", b"|O8"),
    "text": lambda c: changed(c, b"<i8", b"<U2"),
    "no type": lambda c: changed(c, b"<i8", b"<q9"),
    "NUL": lambda c: c[:20] + b"\0" + c[21:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_array_is_one_error_that_names_the_file(tmp_path, damage):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(6))
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(ValueError, match=r"a\.npy: damaged .*prepare the data again"):
        open_array(path)


def test_another_kind_of_number_or_no_file_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(ValueError, match="expected numbers of the kinds i, got float64"):
        open_array(tmp_path / "a.npy", "i")
    with pytest.raises(ValueError, match="cannot be read"):
        open_array(tmp_path / "b.npy")
    with pytest.raises(ValueError, match="cannot be read"):
        open_array(tmp_path)


def test_numbers_out_of_range_are_refused(tmp_path):
    check_range(tmp_path, np.array([0, 3]), 0, 3)
    check_range(tmp_path, np.zeros(0, np.int64), 0, 3)
    for numbers in ([0, 4], [-1, 2]):
        with pytest.raises(ValueError, match="expected numbers from 0 to 3"):
            check_range(tmp_path, np.array(numbers), 0, 3)
