"""From data to answer: train, evaluate, predict and compare, small but real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import odeum
from odeum.lab.cli import main

SMALL = ["--model.width", "16", "--model.heads", "2", "--model.depth", "2"]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def digits(work: Path) -> Path:
    run = work / "digits"
    assert main(["train", "digits", *SMALL, "--train.steps", "30", "--out", str(run)]) == 0
    return run


@pytest.fixture(scope="module")
def pictures(work: Path) -> list[str]:
    from PIL import Image
    from sklearn.datasets import load_digits

    out = []
    for i, image in enumerate(load_digits().images[:3]):
        path = work / f"{i}.png"
        Image.fromarray((image * 15).astype("uint8")).save(path)
        out.append(str(path))
    return out


def test_a_run_holds_all_that_repeats_it(digits: Path) -> None:
    run = json.loads((digits / "run.json").read_text())
    assert run["architecture"] == "sequential" and run["seed"] == 0 and run["versions"]["torch"]
    assert run["command"].startswith("odeum ") and run["training"]["steps"] == 30 and run["fingerprint"]
    result = json.loads((digits / "result.json").read_text())
    assert set(result) >= {"valid", "test", "steps", "seconds", "step_seconds", "peak_memory", "macs"}
    assert not (digits / "checkpoint").exists()


def test_evaluate_repeats_the_result_and_takes_another_solver(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(digits), "--format", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == pytest.approx(json.loads((digits / "result.json").read_text())["test"])
    losses = []
    for steps in ("8", "16"):
        assert main(["evaluate", str(digits), "--solver", "rk4", "--steps", steps, "--format", "json"]) == 0
        losses.append(json.loads(capsys.readouterr().out)["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3) and losses[0] != pytest.approx(again["loss"], rel=1e-6)


def test_predict_classes_of_images(digits: Path, pictures: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(digits), *pictures, "--format", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.strip().split("\n")]
    assert [line["input"] for line in lines] == pictures
    assert all(len(line["output"]) == 3 and 0 <= max(line["output"].values()) <= 1 for line in lines)
    assert odeum.load(digits).predict(pictures, top=3)[0][0][0] == next(iter(lines[0]["output"]))


def test_the_same_command_finds_it_done_and_another_one_is_refused(
    digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (digits / "model.safetensors").stat().st_mtime_ns
    assert main(["train", "digits", *SMALL, "--train.steps", "30", "--out", str(digits)]) == 0
    assert (digits / "model.safetensors").stat().st_mtime_ns == before
    assert main(["train", "digits", *SMALL, "--train.steps", "31", "--out", str(digits)]) == 2
    assert "training.steps is 31 and was 30" in capsys.readouterr().err


def test_print_config_and_config_are_inverse(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits", *SMALL, "--architecture", "rk4:steps=2", "--seed", "3", "--print_config"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    content = yaml.safe_load(printed)
    assert content["architecture"] == "rk4:steps=2" and content["model"]["width"] == 16 and content["seed"] == 3
    path = work / "config.yaml"
    path.write_text(printed)
    assert main(["train", "--config", str(path), "--print_config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == content
    assert main(["train", "--config", str(path), "--seed", "4", "--print_config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["seed"] == 4
    path.write_text(printed + "nonsense: 1\n")
    assert main(["train", "--config", str(path)]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_text_classes(work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        f"{'good fine lovely' if i % 2 else 'bad poor awful'} film number {i},{'pos' if i % 2 else 'neg'}"
        for i in range(80)
    ]
    table = work / "reviews.csv"
    table.write_text("text,label\n" + "\n".join(rows) + "\n")
    run = work / "reviews"
    assert main(["train", str(table), *SMALL, "--train.steps", "40", "--out", str(run)]) == 0
    capsys.readouterr()
    assert main(["predict", str(run), "--text", "good lovely film", "--top", "1"]) == 0
    assert capsys.readouterr().out.startswith("pos ")
    lines = work / "lines.txt"
    lines.write_text("good fine\nbad awful\n")
    for inputs in ([str(lines)], ["--text", "good fine", "--text", "bad awful"]):
        assert main(["predict", str(run), *inputs, "--top", "1"]) == 0
        assert [line[:3] for line in capsys.readouterr().out.strip().split("\n")] == ["pos", "neg"]
    assert main(["predict", str(run), str(work / "none.txt")]) == 2
    assert "--text" in capsys.readouterr().err


def test_generated_text(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = work / "corpus.txt"
    text.write_text("the cat sat on the mat and the dog sat on the log\n" * 200)
    run = work / "corpus"
    words = ["--architecture", "rk4", *SMALL, "--train.steps", "60", "--data.length", "32", "--out", str(run)]
    assert main(["train", str(text), *words]) == 0
    capsys.readouterr()
    ask = ["predict", str(run), "--text", "the cat ", "--max_new_tokens", "10"]
    assert main([*ask, "--temperature", "0"]) == 0
    greedy = capsys.readouterr().out
    assert greedy.startswith("the cat ") and len(greedy) > len("the cat \n")
    sampled = []
    for seed in ("1", "1", "2"):
        assert main([*ask, "--temperature", "2.0", "--seed", seed]) == 0
        sampled.append(capsys.readouterr().out)
    assert sampled[0] == sampled[1] != sampled[2]


def test_compare_adds_to_what_is_there(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = work / "compare"
    words = ["compare", "digits", *SMALL, "--train.steps", "4", "--out", str(out), "--format", "csv"]
    words += ["--jobs", "1"]
    assert main([*words, "--architectures", "sequential,parallel:independent=1", "--seeds", "2"]) == 0
    first = {p: p.stat().st_mtime_ns for p in out.glob("*/seed-*/result.json")}
    assert len(first) == 4
    assert main([*words, "--architectures", "sequential,parallel:independent=1,rk4,steps=2", "--seeds", "3"]) == 0
    table = capsys.readouterr().out
    assert len(list(out.glob("*/seed-*/result.json"))) == 9
    assert all(path.stat().st_mtime_ns == time for path, time in first.items())
    assert "rk4:steps=2" in table and "parallel:independent=1" in table
    page = (out / "report.html").read_text()
    assert "<svg" in page and "http://" not in page.replace("http://www.w3.org", "")
    assert (out / "table.md").exists() and (out / "table.csv").exists()
    assert main(["report", str(out), "--format", "md"]) == 0


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("match", ["macs", "params", "time"])
def test_compare_holds_something_equal(work: Path, match: str) -> None:
    out = work / f"match-{match}"
    length = ["--budget", "0.5s"] if match == "time" else ["--train.steps", "8"]
    names = "sequential,rk4" if match != "params" else "sequential,parallel:independent=1"
    words = ["--match", match, "--architectures", names, "--seeds", "1", "--jobs", "1", "--out", str(out)]
    assert main(["compare", "digits", *SMALL, *length, *words]) == 0
    runs = [json.loads(p.read_text()) for p in sorted(out.glob("*/seed-0/run.json"))]
    results = [json.loads(p.read_text()) for p in sorted(out.glob("*/seed-0/result.json"))]
    if match == "macs":
        assert results[0]["macs"] == pytest.approx(results[1]["macs"], rel=0.25)
        assert results[0]["steps"] != results[1]["steps"]
    elif match == "params":
        assert runs[0]["parameters"] == pytest.approx(runs[1]["parameters"], rel=0.25)
    else:
        plan = json.loads((out / "comparison.json").read_text())
        rk4, sequential = (plan["pace"][name] for name in ("rk4", "sequential"))
        assert [r["steps"] for r in results] == [int(0.5 / pace["seconds"]) for pace in (rk4, sequential)]
        assert rk4["ratio"] > 1.5 and sequential["ratio"] == 1.0
