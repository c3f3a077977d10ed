"""Packed data is the data: gz, zip, Parquet, arrays, save_to_disk, other encodings; bombs and pickles are refused."""

from __future__ import annotations

import gzip
import io
import json
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from odeum.errors import Notice, OdeumError
from odeum.lab.data.inputs import text_inputs
from odeum.lab.data.packed_tables import unpack_parquet, unpack_saved_dataset
from odeum.lab.data.split_names import SPLIT_SPELLINGS
from odeum.lab.tasks import load_task, open_task, reopen_task

ROWS = [{"text": f"number {i} is {'gut' if i % 2 else 'schlecht, süß'}", "label": "ab"[i % 2]} for i in range(60)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text(LINES, encoding="utf-8")
    return path


def same_data(path: Path, plain: Path, **options: str) -> None:
    one, other = open_task(path, **options), open_task(plain)
    assert one.kind == other.kind and one.sizes() == other.sizes()
    assert [str(a) for a in one.identity()] == [str(b) for b in other.identity()]


def test_gzip_and_zip(tmp_path: Path, plain: Path) -> None:
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(LINES.encode()))
    same_data(tmp_path / "rows.jsonl.gz", plain)
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.writestr("inner/rows.jsonl", LINES)
    same_data(tmp_path / "rows.zip", plain)
    task = open_task(tmp_path / "rows.zip")
    assert task.name == "rows.zip" and task.source == (str(tmp_path / "rows.zip"),)
    task.save(tmp_path / "run")
    assert reopen_task(tmp_path / "run").fingerprint() == task.fingerprint() and load_task(tmp_path / "run")


def test_a_zip_of_images(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for name, value in (("dark", 10), ("bright", 200)):
            for i in range(6):
                content = io.BytesIO()
                Image.fromarray(np.full((8, 8), value + i, np.uint8)).save(content, "PNG")
                archive.writestr(f"photos/{name}/{i}.png", content.getvalue())
    assert open_task(tmp_path / "photos.zip").facts() == {"classes": 2, "image_size": 8, "channels": 1}


def test_parquet_and_save_to_disk(tmp_path: Path, plain: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="the extra 'data' is not installed")
    import pyarrow.parquet as parquet

    table = arrow.Table.from_pylist(ROWS)
    parquet.write_table(table, tmp_path / "rows.parquet")
    same_data(tmp_path / "rows.parquet", plain)
    saved = tmp_path / "saved" / "train"
    saved.mkdir(parents=True)
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    numbers = arrow.Table.from_pylist([{**row, "label": "ab".index(row["label"])} for row in ROWS])
    with arrow.OSFile(str(saved / "data-00000.arrow"), "wb") as sink, arrow.ipc.new_stream(sink, numbers.schema) as out:
        out.write_table(numbers)
    (saved / "state.json").write_text('{"_data_files": [{"filename": "data-00000.arrow"}], "_indices_files": null}')
    label = {"names": ["a", "b"], "_type": "ClassLabel"}
    (saved / "dataset_info.json").write_text(json.dumps({"features": {"label": label}}))
    same_data(tmp_path / "saved", plain)
    parquet.write_table(arrow.table({"text": ["a"], "image": [b"x"]}), tmp_path / "bytes.parquet")
    with pytest.raises(OdeumError, match=r"column 'image' of .* has type binary, not text or number"):
        open_task(tmp_path / "bytes.parquet")


def test_tables_that_are_bombs_meet_a_limit(tmp_path: Path) -> None:
    """One long text in every row, as a dictionary or under compression: some kB become GB once they are read."""
    arrow = pytest.importorskip("pyarrow", reason="the extra 'data' is not installed")
    import pyarrow.parquet

    bomb = arrow.table({"text": ["x" * 30_000_000] * 64, "label": [0] * 64})
    pyarrow.parquet.write_table(
        bomb, tmp_path / "a.parquet", compression="zstd", dictionary_pagesize_limit=10**9, write_statistics=False
    )
    (tmp_path / "saved").mkdir()
    options = arrow.ipc.IpcWriteOptions(compression="zstd")
    with (
        arrow.OSFile(str(tmp_path / "saved" / "a.arrow"), "wb") as file,
        arrow.ipc.new_stream(file, bomb.schema, options=options) as writer,
    ):
        writer.write_table(bomb)
    (tmp_path / "saved" / "state.json").write_text('{"_data_files": [{"filename": "a.arrow"}]}')
    (tmp_path / "saved" / "dataset_info.json").write_text("{}")
    for path, unpack in ((tmp_path / "a.parquet", unpack_parquet), (tmp_path / "saved", unpack_saved_dataset)):
        (out := tmp_path / f"out-{path.name}").mkdir()
        with pytest.raises(OdeumError, match=r"takes more memory than|unpacks to more than"):
            unpack(path, out)


def test_parquet_that_is_damaged_or_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow", reason="the extra 'data' is not installed")
    import pyarrow.parquet as parquet

    table, path = arrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet"
    parquet.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    whole = path.read_bytes()
    place = whole.index(b"number 7")
    flipped = whole[:place] + b"N" + whole[place + 1 :]
    for content in (flipped, whole[:4] + bytes(len(whole) - 8) + whole[-4:], whole[: len(whole) // 2] + b"PAR1"):
        path.write_bytes(content)
        with pytest.raises(OdeumError, match=r"rows.parquet' is a Parquet table that cannot be read: "):
            open_task(path)
    twice = arrow.Table.from_arrays([table["text"], table["label"], table["label"]], ["text", "label", "label"])
    parquet.write_table(twice, path)
    with pytest.raises(OdeumError, match=r"rows.parquet' has 2 columns named 'label'"):
        open_task(path)
    monkeypatch.setattr("odeum.lab.data.unpacking.ALWAYS_ALLOWED", 1e5)
    long = arrow.array(["x" * 100_000]).dictionary_encode().take(arrow.array([0] * 5_000))
    parquet.write_table(arrow.table({"text": long, "label": ["a"] * 5_000}), path, compression="zstd")
    with pytest.raises(OdeumError, match="unpacks to more than 200 times its size"):
        open_task(path)


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ([("rows.jsonl", 0), ("rows.jsonl", 0)], "contains 'rows.jsonl' twice"),
        ([("rows.jsonl", 0), ("more.jsonl", stat.S_IFLNK << 16)], "contains the link 'more.jsonl'"),
        ([("rows.jsonl", 0), ("", 0)], "is a ZIP archive that cannot be read"),
        ([("rows.jsonl", 0), ("rows.jsonl/x.jsonl", 0)], "is a ZIP archive that cannot be read"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_strange_members(tmp_path: Path, members: list[tuple[str, int]], sentence: str) -> None:
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        for name, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode
            archive.writestr(info, LINES)
    with pytest.raises(OdeumError, match=sentence):
        open_task(tmp_path / "rows.zip")


@pytest.mark.parametrize("name", ["rows.parquet", "rows.zip", "rows.npz"])
def test_what_was_cut_is_said_to_be(tmp_path: Path, name: str) -> None:
    start = b"PAR1" if name == "rows.parquet" else b"PK\x03\x04"
    for size in (0, 4, 400):
        (tmp_path / name).write_bytes(start + bytes(size))
        with pytest.raises(OdeumError, match=rf"{name}' is a truncated .*; copy or download it again"):
            open_task(tmp_path / name)


def test_sentences_name_what_was_given(tmp_path: Path) -> None:
    """A user knows the archive and what is in it, not where it was unpacked."""
    (tmp_path / "one.csv.gz").write_bytes(gzip.compress(b"alpha,beta\n" + b"1,2\n3,4\n" * 30))
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("in/train.csv", "text,label\n" + "a film,good\na book,bad\n" * 30)
        archive.writestr("in/test.csv", "text,label\na film,good,or,not\n")
    for name, sentence in (("one.csv.gz", "'PATH' has no recog"), ("two.zip", "row 2 of 'PATH/in/test.csv' has 4")):
        with pytest.raises(OdeumError) as caught:
            open_task(tmp_path / name)
        assert sentence.replace("PATH", str(tmp_path / name)) in str(caught.value)
    asked = list(text_inputs([str(tmp_path / "two.zip"), str(tmp_path / "one.csv.gz")], ["text"]))
    assert [str(item.error) for item in asked][1].startswith(f"'{tmp_path / 'one.csv.gz'}' has no column 'text'")


def test_what_is_missing_in_objects_is_an_empty_cell(tmp_path: Path) -> None:
    """Libraries write NaN for it, which would be a class of that name."""
    (tmp_path / "rows.jsonl").write_text(LINES + '{"text": "x", "label": NaN}\n{"text": "y", "label": null}\n')
    with pytest.warns(Notice, match="2 rows of .* without a label were left out"):
        assert open_task(tmp_path / "rows.jsonl").facts()["classes"] == 2


@pytest.mark.parametrize("part", SPLIT_SPELLINGS)
def test_parts_of_arrays_are_spelled_as_those_of_files(part: str, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (30, 8, 8), dtype=np.uint8)
    for word in SPLIT_SPELLINGS[part]:
        spelled = {"train": word} if part == "train" else {"train": "train", part: word}
        arrays = {}
        for name, spelling in spelled.items():
            rows = images[:20] if name == "train" else images[20:26]
            arrays |= {f"{spelling}_images": rows, f"{spelling}_labels": np.arange(len(rows)) % 2}
        np.savez(tmp_path / f"{word}.npz", **arrays)
        sizes = open_task(tmp_path / f"{word}.npz").sizes()
        held = "test"  # a validation part is the test where there is no other
        assert sizes[held] == 6 if part != "train" else sum(sizes.values()) == 20, word


def test_arrays_of_images(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (30, 8, 8, 3), dtype=np.uint8)
    np.savez(
        tmp_path / "set.npz",
        x_train=images[:20],
        y_train=np.arange(20) % 2,
        x_test=images[20:],
        y_test=np.arange(10) % 2,
    )
    task = open_task(tmp_path / "set.npz")
    assert task.facts() == {"classes": 2, "image_size": 8, "channels": 3} and task.sizes()["test"] == 10
    np.savez(tmp_path / "floats.npz", images=images / 255, labels=np.arange(30))
    with pytest.raises(OdeumError, match=r"must have uint8 images .* not float64 \[30, 8, 8, 3\]"):
        open_task(tmp_path / "floats.npz")


def test_a_folder_of_arrays(tmp_path: Path) -> None:
    images, folder = np.random.default_rng(0).integers(0, 255, (30, 8, 8), dtype=np.uint8), tmp_path / "arrays"
    folder.mkdir()
    np.save(folder / "images.npy", images)
    with pytest.raises(OdeumError, match="has the arrays images; expected images and labels"):
        open_task(folder)
    np.save(folder / "labels.npy", np.arange(30) % 3)
    assert open_task(folder).facts() == {"classes": 3, "image_size": 8, "channels": 1}
    np.save(folder / "labels.npy", np.array([{}] * 30))
    with pytest.raises(OdeumError, match=r"'labels' of .* contains pickled objects"):
        open_task(folder)
    with pytest.raises(OdeumError, match=r"give a folder with only images\.npy and labels\.npy"):
        open_task(folder / "images.npy")


def test_another_encoding(tmp_path: Path, plain: Path) -> None:
    (tmp_path / "latin.jsonl").write_text(LINES, encoding="latin-1")
    with pytest.warns(Notice, match=r"is not UTF-8 and is read as cp1252 \(Windows\)"):
        same_data(tmp_path / "latin.jsonl", plain)
    same_data(tmp_path / "latin.jsonl", plain, encoding="latin-1")
    with pytest.raises(OdeumError, match="unknown encoding 'klingon'"):
        open_task(tmp_path / "latin.jsonl", encoding="klingon")
    with pytest.raises(OdeumError, match=r"latin.jsonl' is not ascii: .*; name another --data.encoding"):
        open_task(tmp_path / "latin.jsonl", encoding="ascii")


def test_bombs_pickles_and_ways_out_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odeum.lab.data.unpacking.ALWAYS_ALLOWED", 1e5)
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"text,label\n" + b"a,b\n" * 1_000_000))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", b"a" * 5_000_000)
    with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
        archive.writestr("../../evil.txt", "x" * 100)
    np.savez(tmp_path / "pickled.npz", images=np.array([{}, {}], dtype=object), labels=np.arange(2))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**9, 9, 9)})
    with zipfile.ZipFile(tmp_path / "claims.npz", "w") as archive:
        archive.writestr("images.npy", header.getvalue())
        archive.writestr("labels.npy", header.getvalue())
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(LINES.encode())[:-20])
    for name, sentence in (
        ("bomb.csv.gz", "unpacks to more than 200 times its size; to unpack it anyway, set ODEUM_LIMITS=off"),
        ("bomb.zip", "unpacks to more than 200 times"),
        ("out.zip", "contains '../../evil.txt', a path outside of it"),
        (
            "pickled.npz",
            "the array 'images' of .* contains pickled objects; save it with a numeric dtype",
        ),
        ("claims.npz", "declares 81,000,000,000 bytes, more than the file has"),
        ("cut.csv.gz", "is a gzip file that cannot be read"),
    ):
        with pytest.raises(OdeumError, match=sentence):
            open_task(tmp_path / name)
    kept = tmp_path / "cache" / "odeum" / "unpacked"
    assert not list(kept.iterdir()) and not (tmp_path / "evil.txt").exists()


def test_a_flat_folder_with_classes(tmp_path: Path) -> None:
    for i in range(12):
        Image.fromarray(np.full((8, 8), 20 * i, np.uint8)).save(tmp_path / f"{i}.png")
    rows = "".join(f"{i}.png,{'dark' if i < 6 else 'bright'}\n" for i in range(12))
    for head in ("file,label\n", ""):
        (tmp_path / "labels.csv").write_text(head + rows)
        task = open_task(tmp_path)
        assert task.kind == "images" and task.classes == ["bright", "dark"]  # ty: ignore
        assert sum(task.sizes().values()) == 12
    (tmp_path / "labels.csv").write_text(rows + "none.png,dark\n")
    with pytest.raises(OdeumError, match=r"row 13 of .* names 'none.png', which is not an image"):
        open_task(tmp_path)
