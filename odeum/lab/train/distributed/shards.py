"""A state's tensors on the disk: one file, or a file from each process with its part; read whole, by any world."""

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
"""the shape of the whole tensor, and where in it a part begins"""


def write_shard(directory: Path, rank: int, size: int, tensors: dict[str, Tensor], pieces: dict[str, Piece]) -> None:
    """One process's file among `size`; of the tensors in `pieces` it holds a part."""
    make_directory(directory / SHARDS)
    about = {"rank": rank, "size": size, "pieces": pieces}
    write_tensors(directory / SHARDS / f"{rank:05d}.safetensors", tensors, shard=json.dumps(about))


class StoredTensors:
    """What `World.write` put into a directory, in whatever world."""

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
        """The checksum that each file carries, by its path in the state."""
        return {str(file.path.relative_to(self.directory)): file.seal for file in self.files}

    @property
    def names(self) -> list[str]:
        """Of all tensors."""
        return list(self.pieces)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a whole tensor."""
        return tuple(self.pieces[name][0][1][0])

    def read(self, like: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors of these names and shapes, one after another."""
        for name, tensor in like.items():
            if name not in self.pieces or self.shape(name) != tensor.shape:
                has = list(self.shape(name)) if name in self.pieces else "not there"
                raise Damaged(f"the state '{self.directory}' does not fit: {name} is {has}, not {list(tensor.shape)}")
            yield name, self._whole(name)

    def _whole(self, name: str) -> Tensor:
        parts = [(dict(file.read([name]))[name], piece) for file, piece in self.pieces[name]]
        shape = self.shape(name)
        if len(parts) == 1 and parts[0][0].shape == shape:
            return parts[0][0]
        if sum(part.numel() for part, _ in parts) != math.prod(shape) or any(tuple(p[0]) != shape for _, p in parts):
            raise Damaged(f"'{self.directory / SHARDS}' is damaged: the parts of {name} do not make a whole")
        whole = torch.empty(shape, dtype=parts[0][0].dtype)
        for part, (_, offset) in parts:
            whole[tuple(slice(begin, begin + n) for begin, n in zip(offset, part.shape, strict=True))] = part
        return whole


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
        raise Damaged(f"'{file.path}' is damaged: it does not say of what it is a part") from None
