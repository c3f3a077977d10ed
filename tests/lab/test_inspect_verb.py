"""`odeum inspect`: tables, files and messages, for each kind of run."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from odeum.lab.cli import main
from odeum.lab.study import inspecting
from odeum.lab.tasks.run import load
from odeum.lab.train.origin import write_run

SMALL = ["--train.steps", "2", "--model.depth", "2", "--model.width", "16", "--model.heads", "2"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("inspect")
    words = ["a red bird sings", "the old fox sleeps", "one more day begins", "no cat was seen"]
    (root / "text.txt").write_text("\n".join(words[i % 4] + f" number {i}." for i in range(600)))
    rows = ["text,label", *(f"{words[i % 4]} {i},{'yes' if i % 2 else 'no'}" for i in range(200))]
    (root / "rows.csv").write_text("\n".join(rows))
    pairs = root / "pairs"
    pairs.mkdir()
    lines = [f"{words[i % 4]} {i}" for i in range(200)]
    (pairs / "all.en").write_text("\n".join(lines))
    (pairs / "all.de").write_text("\n".join(line[::-1] for line in lines))
    data = {
        "digits": ["digits"],
        "language": [str(root / "text.txt"), "--kind", "language", "--data.length", "16"],
        "masked": [str(root / "text.txt"), "--kind", "masked"],
        "classes": [str(root / "rows.csv")],
        "pairs": [str(pairs / "all.en"), str(pairs / "all.de")],
    }
    out = {}
    for name, given in data.items():
        assert main(["train", *given, *SMALL, "--out", str(root / name)]) == 0
        out[name] = root / name
    return out


def inspected(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["inspect", *map(str, words), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["digits", "language", "masked", "classes", "pairs"])
def test_a_sample_of_the_test_part(
    name: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = inspected(capsys, runs[name], "--out", tmp_path, "--examples", 3)
    (model,) = result["models"]
    assert len(model["layers"]) == 2 and model["layers"][-1]["agreement"] == 1.0
    assert model["lens"][-1] == model["answer"] and model["advice"]
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert {row["part"] for row in rows} >= {"layer", "attention", "feedforward"}
    assert float(rows[0]["displacement"]) == pytest.approx(model["layers"][0]["displacement"])
    assert json.loads((tmp_path / "inspection.json").read_text())["models"] == result["models"]
    assert Image.open(tmp_path / "particles.png").size[0] > 500
    page = (tmp_path / "page.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page  # self-contained
    for measure in inspecting.MEASURES[:-1]:
        assert measure.about.split("‖")[0].split("<")[0] in page


@pytest.mark.parametrize("name", ["language", "classes", "pairs"])
def test_given_texts(name: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    one = inspected(capsys, runs[name], "--text", "a red bird")
    two = inspected(capsys, runs[name], "--text", "a red bird", "--text", "the old fox sleeps and no cat was seen")
    assert one["sample"] == "1 input" and two["models"][0]["sequences"] == 2
    if name == "language":  # padding on the right does not reach earlier positions
        length = len(one["models"][0]["answer"][0])
        assert two["models"][0]["answer"][0][:length] == one["models"][0]["answer"][0]


def test_many_inputs_are_cut_to_a_bounded_number(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines.txt").write_text("a red bird sings\n" * 9)
    monkeypatch.setattr(inspecting, "MAX_TOKENS", 12)
    result = inspected(capsys, runs["classes"], tmp_path / "lines.txt")
    assert result["sample"] == "3 of 9 inputs" and result["models"][0]["sequences"] == 3


def test_weights_over_time_get_no_advice_to_skip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--architecture", "parallel:weights=knots,knots=2", "--out", str(tmp_path / "run")]
    assert main(["train", "digits", *SMALL, *words]) == 0
    (model,) = inspected(capsys, tmp_path / "run", "--local-error", "--out", tmp_path / "out")["models"]
    assert len(model["layers"]) == len(model["local_error"]) == 2
    assert not any("skip" in line[2] for line in model["advice"])


def test_streams_have_columns_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits", *SMALL, "--architecture", "hyper:streams=3", "--out", str(tmp_path / "run")]) == 0
    (model,) = inspected(capsys, tmp_path / "run", "--examples", 2, "--out", tmp_path / "out")["models"]
    assert all(len(layer["streams"]) == len(layer["stream_displacements"]) == 3 for layer in model["layers"])
    page = (tmp_path / "out" / "page.html").read_text()
    assert "norm of each stream" in page and "moves of each stream" in page


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("sequential", "odeum surgery measures it"),
        ("looped:prelude=1,core=1,coda=0,repeats=2", "--repeats N measures"),
        ("hyper", "odeum surgery does not edit this architecture"),
        ("transevolve:blocks=1", "odeum surgery does not edit this architecture"),
    ],
)
def test_candidates_name_the_command_that_measures_them(
    architecture: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert main(["train", "digits", *SMALL, "--architecture", architecture, "--out", run]) == 0
    assert main(["inspect", run, "--examples", "2", "--out", str(tmp_path / "out")]) == 0
    assert words in capsys.readouterr().out and words in (tmp_path / "out" / "page.html").read_text()
    can = main(["surgery", run, "--edits", "skip", "--screen", "1"]) == 0
    assert can == (architecture == "sequential")


def test_an_early_exit_is_a_depth_after_which_answers_stay(runs: dict[str, Path]) -> None:
    trained = load(runs["digits"])
    here = inspecting.look("run", trained, trained._reopened(), trained._reopened().sample(2))
    layer = here.inspection.layers[0]

    def advice(before: float, *shares: float) -> str:
        layers = tuple(replace(layer, layer=i, agreement=share) for i, share in enumerate(shares))
        inspection = replace(here.inspection, layers=layers, agreement_before=before)
        return "\n".join(
            " | ".join(line) for line in inspecting.advice_grid(replace(here, inspection=inspection)).lines
        )

    assert "after layer 2 | lens agrees on 97.0 % | the later layer changes few" in advice(0.1, 0.96, 0.4, 0.97, 1.0)
    assert "after layer 0 | lens agrees on 96.0 % | the 2 later layers change few" in advice(0.1, 0.96, 0.97, 1.0)
    assert "layer 0 | lens agreement +50.0 points" in advice(0.1, 0.6, 0.9, 1.0)
    assert "layer 2 | lens agreement +50.0 points" in advice(0.4, 0.6, 0.5, 1.0)


def test_given_images(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(tmp_path / "a.png")
    result = inspected(capsys, runs["digits"], tmp_path / "a.png")
    assert result["models"][0]["sequences"] == 1


def test_another_solver_and_another_run_stand_beside_it(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [runs["digits"], "--solver", "rk4", "--beside", runs["digits"], "--local-error", "--lyapunov", 2]
    first, other, again = inspected(capsys, *words)["models"]
    assert first["layers"] == again["layers"] != other["layers"]
    assert max(other["local_error"]) < max(first["local_error"]) and len(first["lyapunov"]) == 2
    for form in ("text", "md", "csv"):
        assert main(["inspect", str(runs["digits"]), "--format", form]) == 0
    assert "to try" in capsys.readouterr().out


def test_some_layers(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (whole,) = inspected(capsys, runs["language"], "--local-error")["models"]
    (part,) = inspected(capsys, runs["language"], "--layers", "1", "--local-error")["models"]
    assert part["layers"] == whole["layers"][1:] and part["lens"] == whole["lens"][1:]


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("digits", ["--layers", "1-5"], "the model has layers 0 to 1"),
        ("digits", ["--layers", "x"], "such as 3-8"),
        ("digits", ["--text", "hello"], "give image files"),
        ("digits", ["--examples", "0"], "at least 1"),
        ("digits", ["--lyapunov", "0"], "--lyapunov 0"),
        ("language", ["--column", "x"], "--column is for tables"),
        ("language", ["missing.txt"], "missing.txt"),
        ("digits", ["--format", "xml"], "xml"),
    ],
)
def test_mistakes(
    name: str, words: list[str], message: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["inspect", str(runs[name]), *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("odeum: ") and "Traceback" not in error


def test_a_run_without_data_asks_for_an_input(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = load(runs["digits"])
    copy = tmp_path / "copy"
    write_run(copy, trained.model, trained.task, {"imported": "elsewhere"}, "odeum import")
    assert main(["inspect", str(copy)]) == 2
    assert "give an input" in capsys.readouterr().err


def test_a_large_page_is_thinned(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inspected(capsys, runs["language"], "--out", tmp_path)
    size = (tmp_path / "page.html").stat().st_size
    monkeypatch.setattr(inspecting, "MOST_BYTES", size - 1000)
    inspected(capsys, runs["language"], "--out", tmp_path)
    page = (tmp_path / "page.html").read_text()
    assert len(page.encode()) < size and "This page is thinned" in page
