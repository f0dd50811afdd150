"""The file format: damage anywhere is found."""

import json
import struct
import zlib

import pytest

from chainrule.coding import DamagedError
from chainrule_app.tasks import container
from chainrule_app.tasks.container import VERSION, read_container, write_container

HEADER = {"name": "naïve \udc80.txt", "size": 9, "method": "run"}
PARTS = [b"side", b"", b"first part", b"second"]


def test_a_file_comes_back():
    found = read_container(write_container(HEADER, PARTS))
    assert found.header == HEADER
    assert found.parts == PARTS


def test_each_changed_byte_and_each_cut_is_found():
    data = write_container(HEADER, PARTS)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        for wrong in (bytes(changed), data[:place]):
            with pytest.raises(ValueError, match=r"expected|damaged|truncated"):
                read_container(wrong)


def test_another_kind_of_file_is_named():
    with pytest.raises(ValueError, match=r"x\.zip: expected a \.chain file"):
        read_container(b"PK\x03\x04", "x.zip")


def framed(packed):
    return struct.pack("<8sBII", b"\x89chain\r\n", VERSION, len(packed), zlib.crc32(packed)) + packed


@pytest.mark.parametrize("header", [[], {"parts": "none"}, {"parts": [-1]}, {"parts": [0.5]}, {}])
def test_an_invalid_header_is_refused_though_its_checksum_fits(header):
    packer = zlib.compressobj(wbits=-15)
    with pytest.raises(DamagedError, match="the header was not written by chainrule"):
        read_container(framed(packer.compress(json.dumps(header).encode()) + packer.flush()))


def test_a_header_that_would_fill_the_memory_is_not_read(monkeypatch):
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(b'{"parts": [], "x": [' + b" " * (1 << 25) + b"]}") + packer.flush()
    with pytest.raises(DamagedError, match="the header was not written by chainrule"):
        read_container(framed(packed))
    data = write_container(HEADER | {"sha256": "0" * 200}, PARTS)
    monkeypatch.setattr(container, "_LONGEST_HEADER", 100)
    with pytest.raises(DamagedError, match="the header was not written by chainrule"):
        read_container(data)
