"""`odeum predict` on what people have: the table they trained on, folders, one broken file among good ones."""

from __future__ import annotations

import csv
import html
import io
import json
import sys
from pathlib import Path

import pytest
from small_runs import write_photos

from odeum.lab.cli import main

TINY = ["--model.width", "8", "--model.heads", "2", "--model.depth", "1", "--train.steps", "1"]
Capture = pytest.CaptureFixture[str]


def write(path: Path, rows: list[list[object]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def trained(folder: Path, *data: Path, words: tuple[str, ...] = ()) -> str:
    out = str(folder / "run")
    assert main(["train", *map(str, data), *TINY, *words, "--out", out]) == 0
    return out


@pytest.fixture(scope="module")
def rows() -> list[list[object]]:
    """60 rows; texts with commas, quotes and line breaks, so that lines are not rows."""
    return [[i, f'number {i},\n"{"good" if i % 2 else "bad"}" film', "pn"[i % 2]] for i in range(60)]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, rows: list[list[object]]) -> Path:
    return write(tmp_path_factory.mktemp("table") / "reviews.csv", [["id", "review", "label"], *rows])


@pytest.fixture(scope="module")
def run(table: Path) -> str:
    return trained(table.parent, table)


def answers(capsys: Capture, *words: str) -> list[dict]:
    capsys.readouterr()
    assert main(["predict", *words, "--format", "json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_table_it_was_trained_on_has_an_answer_a_row(run: str, table: Path, rows: list, capsys: Capture) -> None:
    found = answers(capsys, run, str(table))
    assert [item["row"] for item in found] == list(range(2, 62))
    assert [item["input"] for item in found] == [row[1] for row in rows]
    assert all(item["file"] == str(table) and set(item["output"]) == {"p", "n"} for item in found)


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "json"])
def test_new_tables_need_no_label(run: str, form: str, tmp_path: Path, capsys: Capture) -> None:
    texts = ["a good film", "a bad film", "good"]
    path = tmp_path / f"new.{form}"
    items = [{"other": 1, "Review ": text} for text in texts]
    match form:
        case "csv":
            write(path, [["other", "Review "], *([1, text] for text in texts)])
        case "tsv":
            path.write_text("other\tReview \n" + "".join(f"1\t{text}\n" for text in texts))
        case "jsonl":
            path.write_text("\n".join(map(json.dumps, items)))
        case _:
            path.write_text(json.dumps(items))
    assert [item["input"] for item in answers(capsys, run, str(path))] == texts
    plain = tmp_path / "new.txt"
    plain.write_text("review,label\na good film\n\n")
    assert [item["input"] for item in answers(capsys, run, str(plain))] == ["review,label", "a good film", ""]


def test_another_column_is_chosen_by_name_or_number(run: str, tmp_path: Path, capsys: Capture) -> None:
    path = write(tmp_path / "new.csv", [["a", "b"], ["one", "two"], ["three", "four"]])
    assert [item["input"] for item in answers(capsys, run, str(path), "--column", "b")] == ["two", "four"]
    assert [item["input"] for item in answers(capsys, run, str(path), "--column", "a+b")] == ["one two", "three four"]
    assert [item["input"] for item in answers(capsys, run, str(path), "--column", "2")] == ["b", "two", "four"]


@pytest.mark.parametrize(
    ("name", "content", "words", "sentence"),
    [
        ("x.csv", b"a,b\n1,2\n", "", "has no column 'review', which the run was trained on: its columns are 'a', 'b'"),
        ("x.csv", b"a,b\n1,2\n", "--column c", "x.csv' has no column 'c': its columns are 'a', 'b'"),
        ("x.csv", b"review,b\n1,2\n1,2,3\n", "", "row 3 of 'x.csv' has 3 columns where 2 were expected"),
        ("x.txt", b"a\n", "--column c", "'x.txt' is plain text; --column is for tables"),
        ("x.jsonl", b'{"review": "a"}\n[1]\n', "", "per line, but line 2 is none"),
        ("x.txt.gz", b"\x1f\x8b\x08\0", "", "'x.txt.gz' is a gzip file that cannot be read"),
        ("x.parquet", b"PAR1\0\0", "", "is a truncated Parquet table"),
        ("folder/x.txt", b"a\n", "", "'folder' is a folder, where a file was expected; give the files in it"),
        ("x.txt", b"", "--column c --text a", "--column is for tables"),
    ],
)
def test_tables_that_do_not_fit_are_a_sentence(
    run: str,
    name: str,
    content: bytes,
    words: str,
    sentence: str,
    tmp_path: Path,
    complaint,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(content)
    capsys.readouterr()
    files = [] if "--text" in words else [name.partition("/")[0]]
    assert main(["predict", run, *files, *words.split()]) == 2
    assert sentence in complaint()


def test_a_table_without_a_header(tmp_path: Path, rows: list, capsys: Capture) -> None:
    bare = [[row[2], row[1]] for row in rows]
    run = trained(tmp_path, write(tmp_path / "bare.csv", bare))
    assert [item["row"] for item in answers(capsys, run, str(tmp_path / "bare.csv"))] == list(range(1, 61))
    single = write(tmp_path / "single.csv", [["so, so"], ["good"]])
    assert [item["input"] for item in answers(capsys, run, str(single))] == ["so, so", "good"]
    headed = write(tmp_path / "headed.csv", [["text", "label"], ["good", "p"]])
    assert [item["input"] for item in answers(capsys, run, str(headed))] == ["good"]


def test_the_pairs_it_was_trained_on_are_no_sources(tmp_path: Path, capsys: Capture) -> None:
    pairs = [(f"one {i} and two", f"eins {i} und zwei") for i in range(40)]
    path = tmp_path / "pairs.tsv"
    path.write_text(
        "".join(f"{a}\t{b}\n" for a, b in pairs[:20]) + "\n" + "".join(f"{a}\t{b}\n" for a, b in pairs[20:])
    )
    run = trained(tmp_path, path)
    assert [item["input"] for item in answers(capsys, run, str(path))] == [a for a, _ in pairs]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"))


def test_one_bad_image_does_not_take_the_others_with_it(photos: Path, tmp_path: Path, capsys: Capture) -> None:
    run = trained(tmp_path, photos)
    assert "note: 12 of 12 images are not square and were cropped" in capsys.readouterr().out
    (tmp_path / "bad.png").write_bytes(b"no image")
    good = [str(photos / "dark" / f"{i}.png") for i in (1, 2)]
    assert main(["predict", run, good[0], str(tmp_path / "bad.png"), "missing.png", good[1]]) == 1
    out, err = capsys.readouterr()
    assert [line.split("\t")[0] for line in out.splitlines()] == good
    assert "bad.png' is not a readable image" in err and "there is no file 'missing.png'" in err
    assert main(["predict", run, str(tmp_path / "bad.png")]) == 2
    assert capsys.readouterr().out == ""
    assert main(["predict", run, str(photos)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 12
    (tmp_path / "empty").mkdir()
    assert main(["predict", run, str(tmp_path / "empty")]) == 2
    assert "holds no images" in capsys.readouterr().err


def test_standard_input_is_lines(run: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\ufeffgood, film\r\nbad\n".encode())))
    assert [item["input"] for item in answers(capsys, run)] == ["good, film", "bad"]


def test_notes_and_the_signature_of_bleu_are_told(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"one {i} and two\teins {i} und zwei\n" for i in range(40)))
    quick = ["--data.length", "32", "--data.beam", "1"]  # what has not learned to end a sentence fills the length
    words = ["compare", str(path), *TINY, *quick, "--architectures", "sequential", "--seeds", "1"]
    assert main([*words, "--out", str(tmp_path / "all")]) == 0
    signature = "BLEU is sacreBLEU's, nrefs:1|case:mixed|eff:no|tok:13a"
    assert f"note: {signature}" in capsys.readouterr().err
    run = tmp_path / "all" / "sequential" / "seed-0"
    notes = json.loads((run / "result.json").read_text())["notes"]
    assert any(note.startswith(signature) for note in notes)
    assert signature in html.unescape((tmp_path / "all" / "report.html").read_text())
    assert main(["evaluate", str(run)]) == 0
    out, err = capsys.readouterr()
    assert f"note: {signature}" in err and "bleu" in out


def test_a_table_of_answers_holds_no_formulas(run: str, tmp_path: Path) -> None:
    asked = ["=HYPERLINK(1)", "@x", "+good", "- a film", "-5", "good"]
    path = write(tmp_path / "new.csv", [["review"], *([text] for text in asked)])
    assert main(["predict", run, str(path), "--out", str(tmp_path / "out.csv")]) == 0
    assert main(["predict", run, str(path), "--out", str(tmp_path / "out.jsonl")]) == 0
    with open(tmp_path / "out.csv", newline="") as file:
        cells = [row["input"] for row in csv.DictReader(file)]
    assert cells == ["'=HYPERLINK(1)", "'@x", "'+good", "'- a film", "-5", "good"]
    told = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["input"] for line in told] == asked


def test_an_image_for_a_run_that_reads_texts(run: str, photos: Path, capsys: Capture) -> None:
    capsys.readouterr()
    image = next(path for path in sorted(photos.rglob("*.png")))
    assert main(["predict", run, str(image)]) == 2
    assert "is an image, but this run reads texts; give a table, a text file, or --text" in capsys.readouterr().err
