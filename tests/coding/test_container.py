"""The file format: damage is found and placed."""

import json
import struct
import zlib

import pytest

from chainrule.coding import DamagedError
from chainrule.coding import _container as container
from chainrule.coding._container import read_container, write_container

HEADER = {"files": [["naïve \udc80.txt", 9]], "method": "run"}
PARTS = [b"side", b"", b"first part", b"second"]


def test_a_file_comes_back():
    found = read_container(write_container(HEADER, PARTS))
    assert found.header == HEADER
    assert found.parts == PARTS
    assert not found.damaged


def test_each_changed_byte_is_found_in_its_part_or_in_the_header():
    data = write_container(HEADER, PARTS)
    starts = {0: len(data) - sum(4 + len(part) for part in PARTS)}
    for number, part in enumerate(PARTS):
        starts[number + 1] = starts[number] + 4 + len(part)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        if place < starts[0]:
            with pytest.raises(ValueError, match=r"expected|damaged|cut off"):
                read_container(bytes(changed))
            continue
        hit = max(number for number, start in starts.items() if start <= place)
        assert read_container(bytes(changed)).damaged == [hit]


def test_a_cut_costs_the_parts_behind_it():
    data = write_container(HEADER, PARTS)
    assert read_container(data[:-1]).damaged == [3]
    assert read_container(data[:-11]).damaged == [2, 3]
    with pytest.raises(DamagedError, match="header"):
        read_container(data[:20])


def test_another_kind_of_file_is_named():
    with pytest.raises(ValueError, match=r"x\.zip: expected a \.chain file"):
        read_container(b"PK\x03\x04", "x.zip")


@pytest.mark.parametrize("header", [[], {"parts": "none"}, {"parts": [-1]}, {"parts": [0.5]}, {}])
def test_a_header_that_is_none_is_refused_though_its_checksum_fits(header):
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(json.dumps(header).encode()) + packer.flush()
    start = struct.pack("<8sBII", b"\x89chain\r\n", 1, len(packed), zlib.crc32(packed))
    with pytest.raises(DamagedError, match="the header was not written by chainrule"):
        read_container(start + packed)


def test_a_header_that_would_fill_the_memory_is_neither_read_nor_written(monkeypatch):
    data = write_container(HEADER | {"sha256": "0" * 200}, PARTS)
    monkeypatch.setattr(container, "_LONGEST_HEADER", 100)
    with pytest.raises(DamagedError, match="the header was not written by chainrule"):
        read_container(data)
    with pytest.raises(ValueError, match="header: expected at most 100 bytes, got"):
        write_container(HEADER | {"sha256": "0" * 200}, PARTS)


def test_a_small_header_of_many_entries_is_refused():
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(b'{"parts": [], "x": [' + b" " * (1 << 25) + b"]}") + packer.flush()
    with pytest.raises(DamagedError, match="the header was not written by chainrule"):
        read_container(struct.pack("<8sBII", b"\x89chain\r\n", 1, len(packed), zlib.crc32(packed)) + packed)
