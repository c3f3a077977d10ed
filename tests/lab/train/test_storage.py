"""A file is whole or not there, and one that is not what was written says so."""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from full_disk import files_up_to
from safetensors.torch import load_file
from small_runs import run

from odeum.errors import OdeumError
from odeum.models.tensors import TensorFile, write_tensors
from odeum.storage import (
    Damaged,
    append_line,
    make_directory,
    new_directory,
    out_directory,
    read_json,
    read_lines,
    remove_parts,
    sync_together,
    write_bytes,
    write_json,
)

CONTENT = {"name": "résumé", "values": [1, 2.5, None], "zeros": "0" * 40}
TENSORS = {
    "a": torch.arange(6.0).reshape(2, 3),
    "b.c": torch.tensor(3, dtype=torch.int64),
    "half": torch.ones(5, dtype=torch.bfloat16),
    "none": torch.empty(0, 4),
    "yes": torch.tensor([True, False]),
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", CONTENT)
    assert read_json(tmp_path / "a.json") == CONTENT
    write_tensors(tmp_path / "a.safetensors", TENSORS, note="hello")
    file = TensorFile.open(tmp_path / "a.safetensors")
    file.check()
    assert file.about["note"] == "hello" and file.shapes["none"] == (0, 4)
    for found in (dict(file.read()), load_file(tmp_path / "a.safetensors")):  # ours, and anybody's
        assert found.keys() == TENSORS.keys()
        assert all(torch.equal(found[name], TENSORS[name]) for name in found)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.safetensors"]


def test_every_flipped_bit_of_json_is_noticed(tmp_path: Path) -> None:
    """But for those in the word `checksum`, where the content is what it was and only its warrant is lost."""
    path = tmp_path / "a.json"
    write_json(path, CONTENT)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            try:
                found = read_json(path)
            except Damaged:
                continue
            assert {key: found[key] for key in CONTENT} == CONTENT and len(found) > len(CONTENT)


def test_flipped_and_torn_tensors_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS)
    whole = path.read_bytes()
    flips = random.Random(0).sample([(place, bit) for place in range(len(whole)) for bit in range(8)], 400)
    for place, bit in flips:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            file = TensorFile.open(path)
            file.check()
        except Damaged as error:
            assert str(path) in str(error)
        else:
            assert "checksum" not in file.about  # the flip was in that word
    for length in (0, 7, 8, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(Damaged, match="is damaged"):
            TensorFile.open(path)


def test_what_is_no_file_of_a_run(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text('{"a":' * 200_000 + "1" + "}" * 200_000)
    with pytest.raises(Damaged, match="nested too deeply"):
        read_json(deep)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):  # none of them has an end, or bytes
        with pytest.raises(Damaged, match="cannot read"):
            read_json(path)
        with pytest.raises(Damaged, match="cannot read"):
            TensorFile.open(path)


def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", CONTENT)
    before = (tmp_path / "a.json").read_bytes()
    with files_up_to(10), pytest.raises(OdeumError, match=r"cannot write '.*a\.json': File too large"):
        write_json(tmp_path / "a.json", CONTENT)
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"] and (tmp_path / "a.json").read_bytes() == before
    with pytest.raises(OdeumError, match="cannot write"):
        write_bytes(tmp_path / "missing" / "a", b"")
    (tmp_path / ".1-abc.part").write_text("left by a kill")
    remove_parts(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_files_are_as_readable_as_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "a.json", {})
        write_tensors(tmp_path / "a.safetensors", TENSORS)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o640}


def test_directories_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    for path, reason in (
        (Path("/dev/null"), "'/dev/null' is a file"),
        (tmp_path / "link", "is a link to nowhere"),
        (tmp_path / "file" / "below", "file' is a file"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "a\0b", "null"),
    ):
        with pytest.raises(OdeumError, match=reason):
            make_directory(path)
    for name in ("", " ", "a\0b"):
        with pytest.raises(OdeumError, match="is not a valid directory"):
            out_directory(name, Path("runs"))
    assert out_directory(None, Path("runs")) == Path("runs")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """A file's name may hold bytes that are no UTF-8; what is recorded of it comes back."""
    name = os.fsdecode(b"caf\xe9.csv")
    write_json(tmp_path / "a.json", {"data": [name]})
    assert read_json(tmp_path / "a.json")["data"] == [name]
    json.loads((tmp_path / "a.json").read_text())


def test_a_new_directory_is_filled_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    with pytest.raises(KeyError), new_directory(place) as part:
        (part / "half").write_text("x")
        raise KeyError
    assert not list(tmp_path.iterdir())
    with new_directory(place) as part:
        (part / "sub").mkdir()
        (part / "whole").write_text("x")
        assert not list(place.iterdir())
        with pytest.raises(OdeumError, match="another process is writing to"), new_directory(place):
            pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "sub", "whole"]
    with pytest.raises(OdeumError, match="already exists and is not empty; give a new or"), new_directory(place):
        pass
    with pytest.raises(OdeumError, match="has written to"), new_directory(tmp_path / "c") as part:
        (tmp_path / "c" / "theirs").write_text("x")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["theirs"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    with new_directory(tmp_path / "link") as part:
        (part / "whole").write_text("x")
    assert (tmp_path / "empty" / "whole").exists() and not list(tmp_path.glob(".*"))


def test_lines_of_several_processes_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    code = (
        "import sys; from pathlib import Path; from odeum.storage import append_line\n"
        "for i in range(50): append_line(Path(sys.argv[1]), {'who': sys.argv[2], 'i': i, 'text': 'x' * 5000})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), who]) for who in "ab"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    lines = [content for _, content in read_lines(path)]
    assert sorted((line["who"], line["i"]) for line in lines) == [(who, i) for who in "ab" for i in range(50)]


def test_a_damaged_line_is_one_error_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    for i in range(4):
        append_line(path, {"i": i})
    first, second, third, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second.replace(b'"i": 1', b'"i": 7') + b"[]\n" + third + last[:20])
    append_line(path, {"i": 5})  # begins after the torn line
    lines = dict(read_lines(path))
    assert [lines[n] for n in (1, 4, 6)] == [{"i": 0}, {"i": 2}, {"i": 5}]
    assert all(isinstance(lines[n], Damaged) and f"runs.jsonl:{n}' is damaged" in str(lines[n]) for n in (2, 3, 5))


def test_files_written_together_are_synced_before_their_names_and_their_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(number: int) -> None:
        events.append("directory" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        fsync(number)

    def renamed(old: str | Path, new: str | Path) -> None:
        events.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    with sync_together():
        write_bytes(tmp_path / "a", b"a")
        write_json(tmp_path / "b", {})
    assert events == ["file", "rename", "file", "rename", "directory"]


def test_a_short_run_waits_for_the_disk_at_most_ten_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of short runs spend most of their time on this: each file once, and the directory at three points."""
    count, fsync = 0, os.fsync

    def synced(number: int) -> None:
        nonlocal count
        count += 1
        fsync(number)

    monkeypatch.setattr(os, "fsync", synced)
    run(tmp_path / "run", steps=1)
    files = [path for path in (tmp_path / "run").iterdir() if path.name != "metrics.jsonl"]
    assert count <= len(files) + 3 <= 10
