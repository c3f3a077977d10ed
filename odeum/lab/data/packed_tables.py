"""Unpack Parquet and Arrow tables to JSON lines, and NumPy arrays of images to files in folders."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from odeum.errors import OdeumError
from odeum.lab.data.split_names import SPLIT_SPELLINGS
from odeum.lab.data.unpacking import RATIO, UnpackedSize, lines_within, open_zip
from odeum.models.limits import SWITCH, limits_off

_PARQUET = b"PAR1"
"""first and last bytes of a Parquet file"""
ROWS_AT_ONCE, BYTES_AT_ONCE = 1024, 4 * 2**20
"""rows, and approximate bytes, that are converted to Python objects at once"""
MEMORY = 300 * 2**20
"""memory that reading a table may take, besides three times its unpacked size"""
IMAGE_ARRAYS, LABEL_ARRAYS = ("images", "x", "data"), ("labels", "y", "targets")
"""names of arrays, alone or with a part as prefix or suffix: x_train, train_images"""


def _arrow() -> Any:
    try:
        pyarrow: Any = import_module("pyarrow")
        for part in ("ipc", "parquet"):
            import_module(f"pyarrow.{part}")
    except ImportError:
        raise OdeumError("Parquet and Arrow need pyarrow; `pip install odeum[data]`") from None
    return pyarrow


def unpack_parquet(path: Path, out: Path) -> None:
    """Unpack a Parquet table to one JSON line per row."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - len(_PARQUET)))
        if path.stat().st_size < 12 or file.read() != _PARQUET:
            raise OdeumError(f"'{path}' is a truncated Parquet table; copy or download it again")
    _arrow()
    _in_little_memory("_unpack_parquet", path, out)


def unpack_saved_dataset(path: Path, out: Path) -> None:
    """Unpack each split of `Dataset.save_to_disk` to a file; classes by name."""
    _arrow()
    _in_little_memory("_unpack_saved_dataset", path, out)


def _in_little_memory(unpack: str, path: Path, out: Path) -> None:
    """Unpack in a subprocess with limited memory: the size of a page or batch is known only after it is read."""
    files = [path] if path.is_file() else [file for file in path.rglob("*.arrow") if file.is_file()]
    room = int(UnpackedSize(*files).left)
    code = f"from odeum.lab.data.packed_tables import _limited, {unpack}; _limited({unpack})"
    words = [sys.executable, "-P", "-c", code, str(path), str(out), str(0 if limits_off() else MEMORY + 3 * room)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        if done.returncode > 0 and "Traceback" in done.stderr:
            raise RuntimeError(done.stderr) from None
        answer = f"'{path}' {_TOO_LARGE}"  # killed by the system
    if answer is not None:
        raise OdeumError(answer)


_TOO_LARGE = f"takes more memory than {RATIO} times its size; to read it anyway, set {SWITCH}=off"


def _limited(unpack: Callable[[Path, Path], None]) -> None:
    """Main function of that subprocess: prints the error message, or null, as JSON."""
    path, out, memory = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    answer: str | None = None
    try:
        _arrow()
        with contextlib.suppress(ImportError, OSError, ValueError):  # where there are no such limits
            import resource

            if memory:
                limit = _data_size() + memory
                resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        unpack(path, out)
    except OdeumError as error:
        answer = str(error)
    except MemoryError:
        answer = f"'{path}' {_TOO_LARGE}"
    print(json.dumps(answer))


def _data_size() -> int:
    """Bytes of private memory that this process has mapped."""
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))


def _unpack_parquet(path: Path, out: Path) -> None:
    arrow = _arrow()
    try:
        texts = _text_columns(arrow.parquet.read_schema(path))
        with arrow.parquet.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts) as file:
            _check_columns(path, file.schema_arrow)
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            UnpackedSize(path).take(sum(group.total_byte_size for group in groups))  # before memory is taken for them
            # dictionary encoding keeps a column that repeats one long text small
            lines = _lines(file.iter_batches(batch_size=ROWS_AT_ONCE, use_threads=False))
            lines_within(lines, out / f"{path.stem}.jsonl", UnpackedSize(path))
    except MemoryError:
        raise
    except arrow.ArrowException as error:
        raise OdeumError(f"'{path}' is a Parquet table that cannot be read: {str(error).splitlines()[0]}") from None


def _unpack_saved_dataset(path: Path, out: Path) -> None:
    arrow = _arrow()
    splits = [path] if (path / "state.json").is_file() else [p for p in sorted(path.iterdir()) if p.is_dir()]
    for split in splits:
        state, info = (_json(split / name) for name in ("state.json", "dataset_info.json"))
        if state.get("_indices_files"):
            raise OdeumError(f"'{split}' was saved with an indices mapping; save it again after flatten_indices()")
        features = info.get("features") or {}
        named = {name: f.get("names") for name, f in features.items() if isinstance(f, dict) and f.get("names")}
        files = [split / PurePath(str(item["filename"])).name for item in state.get("_data_files", [])]
        name = split.name if len(splits) > 1 or path != split else "rows"
        target = out / f"{'valid' if name == 'validation' else name}.jsonl"
        try:
            lines_within(_lines(_batches(arrow, files), named), target, UnpackedSize(*files))
        except MemoryError:
            raise
        except arrow.ArrowException as error:
            raise OdeumError(f"'{split}' cannot be read: {str(error).splitlines()[0]}") from None


def _batches(arrow: Any, files: list[Path]) -> Iterator[Any]:
    for file in files:
        with arrow.memory_map(str(file)) as source, arrow.ipc.open_stream(source) as reader:
            _check_columns(file, reader.schema)
            yield from reader


def _text_columns(schema: Any) -> list[str]:
    types: Any = import_module("pyarrow.types")
    return [field.name for field in schema if types.is_string(field.type) or types.is_large_string(field.type)]


def _check_columns(path: Path, schema: Any) -> None:
    types: Any = import_module("pyarrow.types")

    if twice := [name for name in schema.names if schema.names.count(name) > 1]:
        raise OdeumError(
            f"'{path}' has {schema.names.count(twice[0])} columns named '{twice[0]}'; give each its own name"
        )
    for field in schema:
        if types.is_nested(field.type) or types.is_binary(field.type) or types.is_large_binary(field.type):
            raise OdeumError(
                f"column '{field.name}' of '{path}' has type {field.type}, not text or number; save it without the "
                "column, and images as files"
            )


def _lines(batches: Iterable[Any], named: dict[str, list[str]] | None = None) -> Iterator[str]:
    for batch in batches:
        for rows in _slices(batch):
            for row in rows.to_pylist():
                for column, names in (named or {}).items():
                    if isinstance(row.get(column), int) and 0 <= row[column] < len(names):
                        row[column] = names[row[column]]
                yield json.dumps(row, ensure_ascii=False, default=str) + "\n"


def _slices(batch: Any) -> Iterator[Any]:
    """Slices of bounded size; a dictionary is counted as if each row had its longest text."""
    size = sum(c.dictionary.nbytes if hasattr(c, "dictionary") else c.nbytes / max(1, len(c)) for c in batch)
    count = int(max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE / max(1.0, size))))
    for begin in range(0, batch.num_rows, count):
        yield batch.slice(begin, count)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OdeumError(f"'{path}' cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise OdeumError(f"'{path}' must contain a JSON object")
    return content


class ArrayFile(NamedTuple):
    """An array in an archive or folder: a function that opens it, and its size in bytes."""

    open: Callable[[], Any]
    size: int


def unpack_arrays(path: Path, out: Path) -> None:
    """Unpack an .npz of uint8 images [n, height, width(, channels)] and labels [n], in one or more parts."""
    with open_zip(path) as archive:
        files = {
            info.filename.removesuffix(".npy"): ArrayFile(partial(archive.open, info), info.file_size)
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }
        _write_images(path, files, out)


def unpack_array_folder(path: Path, out: Path) -> None:
    """Unpack a folder of .npy files, such as images.npy and labels.npy."""
    files = sorted(path.glob("*.npy"))
    _write_images(path, {file.stem: ArrayFile(partial(open, file, "rb"), file.stat().st_size) for file in files}, out)


def _write_images(path: Path, files: dict[str, ArrayFile], out: Path) -> None:
    from PIL import Image

    room, pairs = UnpackedSize(path), _pairs(list(files))
    if not pairs:
        raise OdeumError(
            f"'{path}' has the arrays {', '.join([*files][:8])}; expected images and labels named like x_train, y_train"
        )
    for part, (images, labels) in pairs.items():
        pictures, classes = (_array(files[name], name, path, room) for name in (images, labels))
        _check_images(path, pictures, classes)
        base = out / part if len(pairs) > 1 else out
        for i, (picture, label) in enumerate(zip(pictures, classes.tolist(), strict=True)):
            target = base / _folder(label) / f"{i:07d}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture.squeeze()).save(target)


def _pairs(names: list[str]) -> dict[str, tuple[str, str]]:
    """Names of the image and label arrays of each part."""
    lowered = {name.lower(): name for name in names}
    out: dict[str, tuple[str, str]] = {}
    for part, spellings in SPLIT_SPELLINGS.items():
        both = []
        for kinds in (IMAGE_ARRAYS, LABEL_ARRAYS):
            wanted = [f for k in kinds for w in spellings for f in (f"{k}_{w}", f"{w}_{k}")]
            wanted += list(kinds) if part == "train" else []
            both.append(next((lowered[name] for name in wanted if name in lowered), None))
        if both[0] is not None and both[1] is not None:
            out[part] = (both[0], both[1])
    return out


def _array(array: ArrayFile, name: str, path: Path, room: UnpackedSize) -> np.ndarray:
    """Read an array after checking its header for size and pickled objects."""
    with array.open() as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(file)
        if kind.hasobject:
            raise OdeumError(f"the array '{name}' of '{path}' contains pickled objects; save it with a numeric dtype")
        claimed = int(np.prod([int(side) for side in shape], dtype=object)) * kind.itemsize
    if claimed > array.size:
        raise OdeumError(f"the array '{name}' of '{path}' declares {claimed:,} bytes, more than the file has")
    room.take(claimed)
    with array.open() as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _check_images(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    labels = labels.squeeze() if labels.ndim > 1 else labels
    fits = images.ndim == 3 or (images.ndim == 4 and images.shape[-1] in (1, 3))
    if images.dtype != np.uint8 or not fits or labels.ndim != 1 or len(labels) != len(images):
        raise OdeumError(
            f"'{path}' must have uint8 images [n, height, width] or [n, height, width, 3] and labels [n], not "
            f"{images.dtype} {list(images.shape)} and {list(labels.shape)}"
        )


def _folder(label: Any) -> str:
    """A label as a folder name."""
    text = str(label[0] if isinstance(label, list) else label)
    return "".join(letter if letter.isalnum() or letter in " -_" else "_" for letter in text)[:100] or "_"
