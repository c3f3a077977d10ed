"""Somebody who did not write it: data of all kinds with no option but the path, mistakes, and what they are told."""

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

import odeum
from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.train.distributed.world import join
from odeum.lab.train.settings import Training

TINY = ["--model.width", "8", "--model.heads", "2", "--model.depth", "1"]
Complaint = Callable[[], str]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def run(table: Path) -> Path:
    out = table.parent / "run"
    assert main(["train", str(table), *TINY, "--train.steps", "2", "--out", str(out)]) == 0
    return out


def test_what_was_left_out_is_one_counted_line(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for out in ("a", "b"):  # not only the first time
        assert main(["train", str(table), *TINY, "--train.steps", "1", "--out", str(tmp_path / out)]) == 0
        err = capsys.readouterr().err
        assert err.startswith(f"odeum: 1 rows of '{table}' without a label were left out\n") and "Warning" not in err


def test_line_ends_are_no_part_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes("The cat sat.\r\nÜber naïve dogs.\r\n".encode() * 60)
    task = odeum.lab.tasks.open_task(path)
    assert "\r" not in task.tokens.to_json() and r"\r" not in task.tokens.to_json()  # ty: ignore


def test_hidden_folders_are_no_data(tmp_path: Path) -> None:
    from PIL import Image

    for i in range(8):
        for name, folder in (("red", "a"), ("blue", "b"), ("green", "b/.thumbs"), ("green", ".cache")):
            path = tmp_path / folder / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), name).save(path)
    task = odeum.lab.tasks.open_task(tmp_path)
    assert task.classes == ["a", "b"]  # ty: ignore
    assert sum(len(labels) for _, labels in task.parts.values()) == 16  # ty: ignore


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--train.batch_size 0", "batch_size of the training must be a positive integer, got 0"),
        ("--train.epochs -1", "epochs of the training must be a positive number, got -1.0"),
        ("--train.steps 0", "steps of the training must be a positive integer, got 0"),
        ("--train.warmup -1", "warmup of the training must be a non-negative number, got -1.0"),
        ("--train.label_smoothing 1", "label_smoothing of the training must be a number from 0 to below 1, got 1.0"),
        ("--train.budget 0s", "the budget '0s' must be a positive time such as 90s, 10m or 2h"),
        ("--train.budget -5s", "--train.budget needs a value; write --train.budget=VALUE if it begins with -"),
        ("--train.steps abc", "--train.steps is 'abc' but must be an integer, or null"),
        ("--learning_rat 1", "unknown option --learning_rat; did you mean --train.learning_rate?"),
        ("--train.learning 1", "unknown option --train.learning; did you mean --train.learning_rate?"),
        ("--print_confi", "did you mean --print_config?"),
        ("--seed -1", "the seed must be a number from 0 to 2⁶³ − 1, not -1"),
        ("--model.width 0", "width must be a positive integer, got 0"),
        ("--model.patch_size 0", "patch_size must be a positive integer, got 0"),
    ],
)
def test_a_setting_that_cannot_be_leaves_nothing_behind(
    words: str, sentence: str, complaint: Complaint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", *words.split()]) == 2
    assert sentence in complaint() and not list(tmp_path.iterdir())


def test_files_of_two_kinds_and_no_name_at_all(complaint: Complaint, table: Path, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("hello\n")
    assert main(["train", str(table), str(text)]) == 2
    assert f"'{table}' is a table and '{text}' is not" in complaint()
    assert main(["train", ""]) == 2
    assert "the name of the data is empty" in complaint()


def test_words_that_follow_a_prompt_stand_apart(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("the cat sat on the mat " * 60)
    words = ["--data.tokens", "words", "--train.steps", "1", "--out", str(tmp_path / "run")]
    assert main(["train", str(path), *TINY, *words]) == 0
    prompts = ["the cat", "the cat ", ""]
    joined, *others = odeum.load(tmp_path / "run").predict(prompts, max_new_tokens=3, temperature=0.0)
    assert joined[0].isspace() and others[0][0] != " " and others[1][0] != " "


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--seeds 0", "at least one seed, not 0"),
        ("--architectures ,", "at least one architecture"),
        ("--tune 2", "--tune 2 is too few runs per architecture to see an optimum; use at least 3"),
        ("--tune-over weight_decay", "--tune-over weight_decay needs a number of tuning runs, such as --tune 3"),
        ("--match foo", "unknown match 'foo'; known: time, steps, macs, params"),
        ("--architectures sequential,continuous --model.dropout 0.1", "an adaptive solver needs a field without"),
        ("--out FILE", "is a file, so there can be no runs in it; give another --out"),
        ("--out FILE/runs", "is a file, so there can be no runs in it; give another --out"),
    ],
)
def test_a_comparison_is_refused_in_one_sentence(
    words: str, sentence: str, complaint: Complaint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "FILE"
    file.write_text("mine")
    assert main(["compare", "digits", *words.split()]) == 2
    assert sentence in complaint() and file.read_text() == "mine" and list(tmp_path.iterdir()) == [file]


def test_a_comparison_refused_for_other_settings_loses_nothing(
    tmp_path: Path, complaint: Complaint, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "digits", "--architectures", "sequential", "--seeds", "1", "--out", str(tmp_path), *TINY]
    assert main([*words, "--train.steps", "2"]) == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    capsys.readouterr()
    assert main([*words, "--train.steps", "3"]) == 2
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


def test_words_and_options_in_any_order(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("lovely film\n\nawful", encoding="utf-8")
    outputs = []
    for words in ([run, lines, "--top", "1"], ["--top", "1", run, lines], [run, "--top=1", lines, "--format", "text"]):
        assert main(["predict", *map(str, words)]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0].count("\n") == 3 and outputs[1:] == outputs[:2]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("RUN --top 0 --text a", "top must be at least one class, not 0"),
        ("RUN --text a lines.txt", "give either --text or files, not both"),
        ("RUN latin.txt", "line 2 of 'latin.txt' is not UTF-8: byte 0xe9 at offset 3"),
        ("RUN --solver rk4 --steps 0 --text a", "must be a positive integer, got 0"),
        ("RUN/.. --text a", "there are runs inside, such as"),
        ("begun --text a", "the run 'begun' is not finished; `odeum train x --out begun` continues it"),
        (". --text a", "is no run of Odeum: it holds no model.safetensors"),
    ],
)
def test_predictions_that_cannot_be(
    words: str, sentence: str, run: Path, complaint: Complaint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.txt").write_bytes(b"the\ncaf\xe9\n")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_text(json.dumps({"command": "odeum train x"}))
    assert main(["predict", *words.replace("RUN", str(run)).split()]) == 2
    assert sentence in complaint()


def test_damaged_weights_are_a_sentence(run: Path, tmp_path: Path, complaint: Complaint) -> None:
    import shutil

    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "run"
    shutil.copytree(run, broken)
    weights = load_file(run / "model.safetensors")
    save_file(dict(list(weights.items())[1:]), broken / "model.safetensors")
    assert main(["predict", str(broken), "--text", "a"]) == 2
    assert "model.safetensors' names no run" in complaint()
    with safe_open(run / "model.safetensors", "pt") as file:
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
    assert "type:" not in text and "CONFIG" not in text and "(default: sequential)" in text


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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("source: null", "source must be a data set"),
        ("source: 5", "source must be a data set"),
        ("source: digits\ntrain: 5", "train must be a mapping of options, not 5"),
        ("source: digits\nmodel: 5", "model must be a mapping of options, not 5"),
    ],
)
def test_configurations_of_other_shapes(text: str, sentence: str, tmp_path: Path, complaint: Complaint) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert main(["train", "--config", str(tmp_path / "c.yaml")]) == 2 and sentence in complaint()
    assert main(["train", "digits", "--config", str(tmp_path / "c.yaml")]) == 2 and sentence in complaint()


def test_an_end_in_words_overrules_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("source: digits\ntrain: {steps: 50}")
    words = ["train", "--config", str(tmp_path / "c.yaml"), "--train.epochs", "0.1", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 4
    assert main(["train", "digits", "--train.steps", "3", "--train.epochs", "5"]) == 2


def test_options_that_would_do_nothing_are_refused(run: Path, complaint: Complaint) -> None:
    assert main(["predict", str(run), "--text", "a film", "--beam", "3"]) == 2
    assert "--beam has no effect on a classification run; it has --top" in complaint()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("task.json", "{", "is damaged"),
        ("task.json", "{}", "names no run"),
        ("config.json", '{"a": 1}', "names no run"),
        ("config.json", "null", "it is not a JSON object"),
    ],
)
def test_damaged_descriptions_are_a_sentence(
    name: str, content: str, sentence: str, run: Path, tmp_path: Path, complaint: Complaint
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / name).write_text(content)
    assert main(["predict", str(copy), "--text", "a film"]) == 2 and sentence in complaint()


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"WORLD_SIZE": "x"}, "the environment says WORLD_SIZE='x', which is no number of processes"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE='0'"),
        ({"RANK": "-1"}, "RANK='-1'"),
        ({"WORLD_SIZE": "2"}, "says WORLD_SIZE=2 but not RANK; start several processes by torchrun"),
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
    run: Path, complaint: Complaint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["predict", str(run)]) == 2
    assert "standard input is closed" in complaint()
