"""Tensors in a file: the safetensors format, whole or not there, with a checksum in its header; no pickle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from odeum.storage import UNSEALED, Damaged, check_seal, current_path, run_id_entry, write_sealed

TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
LARGEST_HEADER = 100_000_000
"""types of the safetensors library"""
BYTES_AT_ONCE = 1 << 22


def write_tensors(path: Path, tensors: Mapping[str, Tensor], **about: str) -> None:
    """Any tensors under any names, and a few texts about them; moved to the CPU one after another.

    In the directory of a run the file carries the run's id.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so that all lie aligned
    header: dict[str, object] = {"__metadata__": {**about, **run_id_entry(path), "checksum": UNSEALED}}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write_sealed(path, len(text).to_bytes(8, "little") + text, (_bytes(tensors[name]) for name in order))


def _bytes(tensor: Tensor) -> memoryview:
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(plain.view(torch.uint8).numpy())


@dataclass(frozen=True)
class TensorFile:
    """The header of a file of tensors; the tensors are read on request."""

    path: Path
    head: bytes
    shapes: dict[str, tuple[int, ...]]
    about: dict[str, str]

    @classmethod
    def open(cls, path: Path) -> TensorFile:
        """Read the header alone: as much memory as the names take, whatever shapes it claims."""
        place = current_path(path)
        try:
            if place.exists() and not place.is_file():
                raise Damaged(f"cannot read '{path}': it is {'a directory' if place.is_dir() else 'no regular file'}")
            size = place.stat().st_size
            with open(place, "rb") as file:
                first = file.read(8)
                length = int.from_bytes(first, "little")
                if len(first) < 8 or length > min(LARGEST_HEADER, size - 8):
                    raise Damaged(f"'{path}' is damaged: it is cut short, or no safetensors file")
                text = file.read(length)
            entries = json.loads(text)
            about = entries.pop("__metadata__", {})
            shapes = {name: tuple(map(int, entry["shape"])) for name, entry in entries.items()}
            end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
        except OSError as error:
            raise Damaged(f"cannot read '{path}': {error.strerror}") from None
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            if isinstance(error, Damaged):
                raise
            raise Damaged(f"'{path}' is damaged: its header is not that of a safetensors file") from None
        if size != 8 + length + end:
            raise Damaged(f"'{path}' is damaged: it has {size:,} bytes and should have {8 + length + end:,}")
        return cls(path, first + text, shapes, about if isinstance(about, dict) else {})

    @property
    def run_id(self) -> str | None:
        """The id of the run that wrote it, if one did."""
        return self.about.get("run_id")

    @property
    def seal(self) -> str | None:
        """The checksum that it carries."""
        return self.about.get("checksum")

    def check(self) -> None:
        """Read all of it once and compare with the checksum."""
        check_seal(self.path, self.seal, self.head, self._chunks(), self.run_id)

    def _chunks(self) -> Iterator[bytes]:
        with open(current_path(self.path), "rb") as file:
            file.seek(len(self.head))
            while part := file.read(BYTES_AT_ONCE):
                yield part

    def read(self, names: Iterable[str] | None = None) -> Iterator[tuple[str, Tensor]]:
        """Name and value, one after another; all, or those of these names."""
        try:
            with safe_open(current_path(self.path), "pt") as file:
                for name in self.shapes if names is None else names:
                    yield name, file.get_tensor(name)
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise Damaged(f"'{self.path}' is damaged: {' '.join(str(error).split())}") from None


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor that holds a NaN or an infinity, if there is one."""
    return next((n for n, t in tensors.items() if t.is_floating_point() and not bool(t.isfinite().all())), None)
