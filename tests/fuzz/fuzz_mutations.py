"""Damage of all kinds to a file, chosen by a seeded source of randomness."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors import safe_open

from chainrule.tensor_files import read_tensors, write_tensors
from chainrule_app.tasks.container import read_container, write_container

NASTY = (
    b"\x00", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\x1b[2J\x1b]0;x\x07", b"\xe2\x80\xae", b"\xc2\x9b31m",
    b"\xef\xbb\xbf", b"\r", b"\n\n\n", b"\t\t\t", b'"', b"'", b",,,,", b"9" * 400, b"1e999", b"-1e308", b"nan", b"-inf",
    b"-0", b"1_000", b"\xd9\xa1\xd9\xa2", b"2024-13-45", b"A" * 20_000, b"=cmd()", b"{}[]", b"../../../x",
    b"<script>alert(1)</script>",
)  # fmt: skip
VALUES = (
    None, True, -1, 0, 1, 10**30, -(10**18), 0.5, 1e308, float("nan"), float("inf"), "", "x", "\x1b[2J", "A" * 5000,
    [], {}, [[]], {"a": 1}, [1] * 50, "../../etc", "char", "\ud800",
)  # fmt: skip
Change = Callable[[Random, Path], None]


def mutate(random: Random, path: Path, others: list[Path]) -> str:
    """Damage one file; returns in words how, for the report.

    Args:
        random: decides on everything.
        path: the file, or a folder of which one file is taken.
        others: files that may be put in its place.
    """
    if path.is_dir():
        path = random.choice(sorted(part for part in path.rglob("*") if part.is_file()))
    changes: list[Change] = [flip_bits, cut, insert, repeat, remove_slice, overwrite, shuffle_lines]
    if path.suffix in (".json", ".jsonl"):
        changes = [*changes[:3], change_json, change_json, change_json, nest]
    if path.suffix == ".safetensors":
        changes = [*changes[:2], reseal, reseal, reseal]
    if path.suffix == ".chain":
        changes = [*changes[:3], rewrite_chain, rewrite_chain]
    if random.random() < 0.12:
        changes = [replace_whole(random.choice(others)), empty, delete, make_folder]
    change = random.choice(changes)
    change(random, path)
    return f"{change.__name__} in {path.name}"


def flip_bits(random: Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 1, 3, 20))):
        if content:
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def cut(random: Random, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: random.randrange(len(content) + 1)])


def insert(random: Random, path: Path) -> None:
    content = path.read_bytes()
    for _ in range(random.choice((1, 1, 4))):
        place = random.randrange(len(content) + 1)
        content = content[:place] + random.choice(NASTY) + content[place:]
    path.write_bytes(content)


def repeat(random: Random, path: Path) -> None:
    content = path.read_bytes()
    start = random.randrange(len(content) + 1)
    piece = content[start : start + random.choice((1, 10, 500))]
    path.write_bytes(content[:start] + piece * random.choice((2, 30)) + content[start:])


def remove_slice(random: Random, path: Path) -> None:
    content = path.read_bytes()
    start = random.randrange(len(content) + 1)
    path.write_bytes(content[:start] + content[start + random.choice((1, 5, 300)) :])


def overwrite(random: Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    start = random.randrange(len(content) + 1)
    width = random.choice((1, 4, 8, 100))
    content[start : start + width] = bytes([random.choice((0, 255, 127, 32))]) * width
    path.write_bytes(content)


def shuffle_lines(random: Random, path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    random.shuffle(lines)
    path.write_bytes(b"\n".join(lines))


def empty(random: Random, path: Path) -> None:
    path.write_bytes(b"")


def delete(random: Random, path: Path) -> None:
    path.unlink()


def make_folder(random: Random, path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_whole(other: Path) -> Change:
    def replace(random: Random, path: Path) -> None:
        shutil.copyfile(other, path)

    replace.__name__ = f"replace by {other.name}"
    return replace


def nest(random: Random, path: Path) -> None:
    bracket = random.choice(("[", '{"a":'))
    path.write_text(bracket * random.choice((500, 200_000)))


def change_json(random: Random, path: Path) -> None:
    """Change one value, or the keys of one object, of a JSON file or of a line of one."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.suffix == ".jsonl" else [path.read_text("utf-8")]
    if not lines:
        return
    place = random.randrange(len(lines))
    lines[place] = json.dumps(changed(random, json.loads(lines[place])))
    if random.random() < 0.1:
        lines[place] = lines[place].replace("{", '{"format": 1, "format": 2, ', 1)  # a key twice
    path.write_text("\n".join(lines) + "\n")


def changed(random: Random, content: Any) -> Any:
    """A JSON value with one part of it changed, the deeper the more likely."""
    if isinstance(content, dict) and content and random.random() < 0.9:
        key = random.choice(sorted(content))
        match random.randrange(8):
            case 0:
                return {name: value for name, value in content.items() if name != key}
            case 1:
                return content | {random.choice(("x", "", "step", "\x1b[2J")): random.choice(VALUES)}
        return content | {key: changed(random, content[key])}
    if isinstance(content, list) and content and random.random() < 0.9:
        place = random.randrange(len(content))
        match random.randrange(6):
            case 0:
                return content[:place] + content[place + 1 :]
            case 1:
                return [*content, content[place]]
        return [changed(random, value) if index == place else value for index, value in enumerate(content)]
    if isinstance(content, int) and random.random() < 0.5:
        return random.choice((content + 1, content - 1, -content, content * 1000, float(content), str(content)))
    return random.choice(VALUES)


def reseal(random: Random, path: Path) -> None:
    """Change tensors or the record of a sealed file and seal it again, so that its digest holds."""
    tensors, record = read_tensors(path)
    if random.random() < 0.5:
        record = changed(random, record)
        record = record if isinstance(record, dict) else {"record": record}
    else:
        name = random.choice(sorted(tensors))
        tensors[name] = random.choice(TENSOR_CHANGES)(tensors[name])
        if random.random() < 0.2:
            del tensors[name]
    try:
        write_tensors(path, tensors, record)
    except ValueError:  # a record with NaN, which is never written
        flip_bits(random, path)
        return
    with safe_open(path, framework="pt") as file:
        assert file.metadata() is not None


def rewrite_chain(random: Random, path: Path) -> None:
    """Change the header or the parts of a compressed file, with checksums that fit."""
    try:
        found = read_container(path.read_bytes())
    except ValueError:  # it was damaged before
        flip_bits(random, path)
        return
    header, parts = found.header, list(found.parts)
    if random.random() < 0.7:
        header = changed(random, header)
        header = header if isinstance(header, dict) else {"header": header}
    else:
        place = random.randrange(len(parts))
        part = random.choice((b"", parts[place][:-4], parts[place] + b"\0" * 4, random.randbytes(len(parts[place]))))
        parts = random.choice(([*parts[:place], part, *parts[place + 1 :]], parts[:place], [*parts, part]))
    path.write_bytes(write_container(header, parts))


TENSOR_CHANGES: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda tensor: tensor.flatten(),
    lambda tensor: tensor.unsqueeze(0),
    lambda tensor: tensor.double(),
    lambda tensor: tensor.to(torch.int64),
    lambda tensor: tensor.to(torch.bfloat16),
    lambda tensor: torch.full_like(tensor, float("nan")) if tensor.is_floating_point() else tensor - 1,
    lambda tensor: torch.full_like(tensor, 1e38) if tensor.is_floating_point() else tensor * 10**9,
    lambda tensor: tensor.new_zeros(0),
    lambda tensor: torch.cat([tensor.flatten(), tensor.flatten()]),
)
