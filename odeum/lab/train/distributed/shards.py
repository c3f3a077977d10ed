"""Checkpoint tensors on disk: one file, or one shard per process, readable by any number of processes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from odeum.models.tensors import TensorFile, write_tensors
from odeum.storage import Damaged, current_path, make_directory

FILE = "tensors.safetensors"
SHARDS = "shards"
Piece = tuple[list[int], list[int]]
"""the shape of the full tensor, and the offset of a part in it"""


def write_shard(directory: Path, rank: int, size: int, tensors: dict[str, Tensor], pieces: dict[str, Piece]) -> None:
    """Write one process's file of `size`; it holds only a part of each tensor in `pieces`."""
    make_directory(directory / SHARDS)
    about = {"rank": rank, "size": size, "pieces": pieces}
    write_tensors(directory / SHARDS / f"{rank:05d}.safetensors", tensors, shard=json.dumps(about))


class StoredTensors:
    """Reads the tensors that `World.write` wrote, with any number of processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pieces: dict[str, list[tuple[TensorFile, Piece]]] = {}
        if current_path(directory / FILE).exists():
            self.files = [TensorFile.open(directory / FILE)]
            self.pieces = {name: [(self.files[0], _all_of(shape))] for name, shape in self.files[0].shapes.items()}
            return
        shards = sorted(path.name for path in current_path(directory / SHARDS).glob("*.safetensors"))
        self.files = [TensorFile.open(directory / SHARDS / name) for name in shards]
        if not self.files:
            raise Damaged(f"the state '{directory}' is damaged: it holds no tensors")
        for file in self.files:
            size, pieces = _shard(file)
            if size != len(self.files):
                raise Damaged(f"'{directory / SHARDS}' is damaged: it holds {len(self.files)} of {size} shards")
            for name, shape in file.shapes.items():
                self.pieces.setdefault(name, []).append((file, pieces.get(name) or _all_of(shape)))

    @property
    def seals(self) -> dict[str, str | None]:
        """The checksum stored in each file, by its path in the checkpoint."""
        return {str(file.path.relative_to(self.directory)): file.seal for file in self.files}

    @property
    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self.pieces)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a full tensor."""
        return tuple(self.pieces[name][0][1][0])

    def read(self, like: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yields full tensors with these names and shapes, one at a time."""
        for name, tensor in like.items():
            if name not in self.pieces or self.shape(name) != tensor.shape:
                has = list(self.shape(name)) if name in self.pieces else "missing"
                raise Damaged(f"the state '{self.directory}' does not fit: {name} is {has}, not {list(tensor.shape)}")
            yield name, self._assemble(name)

    def _assemble(self, name: str) -> Tensor:
        parts = [(dict(file.read([name]))[name], piece) for file, piece in self.pieces[name]]
        shape = self.shape(name)
        if len(parts) == 1 and parts[0][0].shape == shape:
            return parts[0][0]
        if sum(part.numel() for part, _ in parts) != math.prod(shape) or any(tuple(p[0]) != shape for _, p in parts):
            raise Damaged(
                f"'{self.directory / SHARDS}' is damaged: the parts of {name} do not add up to the full tensor"
            )
        tensor = torch.empty(shape, dtype=parts[0][0].dtype)
        for part, (_, offset) in parts:
            tensor[tuple(slice(begin, begin + n) for begin, n in zip(offset, part.shape, strict=True))] = part
        return tensor


def _all_of(shape: tuple[int, ...]) -> Piece:
    return list(shape), [0] * len(shape)


def _shard(file: TensorFile) -> tuple[int, dict[str, Piece]]:
    try:
        about = json.loads(file.about["shard"])
        pieces = {
            name: ([int(n) for n in shape], [int(n) for n in offset])
            for name, (shape, offset) in about["pieces"].items()
        }
        return int(about["size"]), pieces
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        raise Damaged(f"'{file.path}' is damaged: its header does not describe its shard") from None
