"""From data to answer: train, evaluate, predict and compare, small but real."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import odeum
from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.train.distributed.world import join
from odeum.lab.train.settings import Training

SMALL = ["--model.width", "16", "--model.heads", "2", "--model.depth", "2"]
TINY = ["--model.width", "8", "--model.heads", "2", "--model.depth", "1"]
Complaint = Callable[[], str]


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


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with all that CSV allows: quotes, commas, line breaks, CRLF, a byte-order mark, missing labels."""
    path = tmp_path_factory.mktemp("table") / "reviews.csv"
    with open(path, "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(["text", "label"])
        for i in range(60):
            word = "lovely, fine" if i % 2 else 'awful "sad"'
            writer.writerow([f"{word} film 日本\nnumber {i}", "" if i == 7 else i % 2])
    return path


@pytest.fixture(scope="module")
def reviews_run(reviews: Path) -> Path:
    out = reviews.parent / "run"
    assert main(["train", str(reviews), *TINY, "--train.steps", "2", "--out", str(out)]) == 0
    return out


def test_what_was_left_out_is_one_counted_line(
    reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for out in ("a", "b"):  # not only the first time
        assert main(["train", str(reviews), *TINY, "--train.steps", "1", "--out", str(tmp_path / out)]) == 0
        err = capsys.readouterr().err
        assert err.startswith(f"odeum: 1 rows of '{reviews}' without a label were left out\n") and "Warning" not in err


def test_words_that_follow_a_prompt_stand_apart(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("the cat sat on the mat " * 60)
    words = ["--data.tokens", "words", "--train.steps", "1", "--out", str(tmp_path / "run")]
    assert main(["train", str(path), *TINY, *words]) == 0
    prompts = ["the cat", "the cat ", ""]
    joined, *others = odeum.load(tmp_path / "run").predict(prompts, max_new_tokens=3, temperature=0.0)
    assert joined[0].isspace() and others[0][0] != " " and others[1][0] != " "


def test_a_comparison_refused_for_other_settings_loses_nothing(
    tmp_path: Path, complaint: Complaint, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "digits", "--architectures", "sequential", "--seeds", "1", "--out", str(tmp_path), *TINY]
    assert main([*words, "--train.steps", "2"]) == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    capsys.readouterr()
    run = ["train", "digits", *TINY, "--train.steps", "3", "--out", str(tmp_path / "sequential" / "seed-0")]
    for line in ([*words, "--train.steps", "3"], run):
        for dry in ([], ["--dry-run"]):
            assert main([*line, *dry]) == 2
            assert "training.steps is 3 and was 2" in complaint()
    assert main([*words, "--train.steps", "2", "--data.augment", "none"]) == 2
    assert "holds a run on other data (digits, fingerprint" in complaint()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_diverging_again_is_failing_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "digits", *TINY, "--architectures", "sequential", "--seeds", "1", "--out", str(tmp_path)]
    for _ in range(2):
        assert main([*words, "--train.learning_rate", "1e30", "--train.clip", "0", "--train.steps", "9"]) == 1
        assert "Every run on digits diverged" in capsys.readouterr().err
    assert main(["predict", str(tmp_path / "sequential" / "seed-0"), "x.png"]) == 2
    assert "failed: the loss of sequential" in capsys.readouterr().err


def test_words_and_options_in_any_order(reviews_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("lovely film\n\nawful", encoding="utf-8")
    outputs = []
    for words in (
        [reviews_run, lines, "--top", "1"],
        ["--top", "1", reviews_run, lines],
        [reviews_run, "--top=1", lines, "--format", "text"],
    ):
        assert main(["predict", *map(str, words)]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0].count("\n") == 3 and outputs[1:] == outputs[:2]


def test_damaged_weights_are_a_sentence(reviews_run: Path, tmp_path: Path, complaint: Complaint) -> None:

    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "run"
    shutil.copytree(reviews_run, broken)
    weights = load_file(reviews_run / "model.safetensors")
    save_file(dict(list(weights.items())[1:]), broken / "model.safetensors")
    assert main(["predict", str(broken), "--text", "a"]) == 2
    assert "model.safetensors' names no run" in complaint()
    with safe_open(reviews_run / "model.safetensors", "pt") as file:
        save_file(dict(list(weights.items())[1:]), broken / "model.safetensors", file.metadata())
    assert main(["predict", str(broken), "--text", "a"]) == 2
    assert "model.safetensors' is damaged: its content does not match its checksum" in complaint()
    (broken / "model.safetensors").write_bytes(b"half a file")
    assert main(["predict", str(broken), "--text", "a"]) == 2
    assert "model.safetensors' is damaged: it is cut short, or no safetensors file" in complaint()


def test_a_missing_set_says_all_that_is_missing(
    complaint: Complaint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODEUM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert main(["train", "multi30k-en-de"]) == 2
    assert "train.en, train.de, val.en, val.de, test_2016_flickr.en, test_2016_flickr.de into" in complaint()


def test_a_translation_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    for side, add in (("en", ""), ("de", "o")):
        lines = [" ".join(words[(i * j) % 10] + add for j in range(2, 5)) for i in range(60)]
        (tmp_path / f"train.{side}").write_text("\n".join(lines) + "\n")
    paths = [str(tmp_path / f"train.{side}") for side in ("en", "de")]
    out = tmp_path / "run"
    assert main(["train", *paths, *TINY, "--train.steps", "1", "--out", str(out)]) == 0
    model = odeum.load(out)
    short, long = "one", " ".join(words * 3)
    assert model.predict([short, long]) == [*model.predict([short]), *model.predict([long])]


def test_a_reader_may_stop_reading() -> None:
    script = "import sys; from odeum.lab.cli import main; sys.exit(main(['list']))"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()  # before anything is written
        assert process.stderr.read() == b"" and process.wait() == 0


def test_help_is_short_and_says_only_what_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "digits", "--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: odeum train DATA … [--option value …]\n")
    assert "type:" not in text and "CONFIG" not in text and "(default: sequential)" in " ".join(text.split())


@pytest.mark.slow
def test_multiply_adds_of_a_comparison_are_those_that_were_asked_for(tmp_path: Path) -> None:
    words = ["compare", "digits", "--architectures", "sequential,rk4", "--seeds", "1", "--train.macs", "2e9"]
    steps = {}
    for match in ("macs", "steps"):
        assert main([*words, "--match", match, "--out", str(tmp_path / match)]) == 0
        for name in ("sequential", "rk4"):
            result = json.loads((tmp_path / match / name / "seed-0" / "result.json").read_text())
            steps[match, name] = result["steps"]
            if match == "macs" or name == "sequential":
                assert result["macs"] == pytest.approx(2e9, rel=0.35)  # a step of rk4 is a third of it
    assert steps["steps", "rk4"] == steps["steps", "sequential"] > 2 * steps["macs", "rk4"]
    assert main([*words, "--match", "steps", "--out", str(tmp_path / "macs")]) == 2  # one table, one promise


def test_an_end_in_words_overrules_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("source: digits\ntrain: {steps: 50}")
    words = ["train", "--config", str(tmp_path / "c.yaml"), "--train.epochs", "0.1", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 4
    assert main(["train", "digits", "--train.steps", "3", "--train.epochs", "5"]) == 2


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"WORLD_SIZE": "x"}, "the environment variable WORLD_SIZE='x' is not a number of processes"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE='0'"),
        ({"RANK": "-1"}, "RANK='-1'"),
        ({"WORLD_SIZE": "2"}, "sets WORLD_SIZE=2 but not RANK; start several processes with torchrun"),
    ],
)
def test_half_a_launcher_is_a_sentence(
    environment: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OdeumError, match=re.escape(sentence)):
        join(Training(device="cpu"))


def test_a_closed_standard_input_is_a_sentence(
    reviews_run: Path, complaint: Complaint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["predict", str(reviews_run)]) == 2
    assert "standard input is closed" in complaint()
