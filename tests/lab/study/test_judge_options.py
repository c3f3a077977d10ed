"""What decides (`--judge`), and when a row is stopped because it will hardly be shown better."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.study.judge import STOPPED, Criterion, Seeds, judge
from odeum.lab.study.metric import METRICS, Margin, judge_named, signal_over_noise
from odeum.lab.study.runs import read
from odeum.lab.study.statistics import to_baseline
from odeum.lab.tasks import open_task

WORDS = [
    *("compare", "digits", "--architectures", "sequential,parallel", "--seeds", "2", "--jobs", "1", "--quiet"),
    *("--model.width", "16", "--model.heads", "2", "--model.depth", "1", "--train.steps", "20", "--match", "steps"),
]
pytestmark = pytest.mark.usefixtures("without_plots")


def test_any_metric_of_the_task_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WORDS, "--judge", "macro_f1", "--out", str(tmp_path / "out")]
    assert main(words) == main(words) == 0, "a second call finds what it needs"
    results = read(tmp_path / "out")
    assert results.study.metric is METRICS["macro_f1"] and results.study.other == "loss"
    assert results.study.margin == Margin(0.01)
    assert "test macro_f1" in (tmp_path / "out" / "table.md").read_text()
    capsys.readouterr()
    assert main([*WORDS, "--judge", "bleu", "--out", str(tmp_path / "other")]) == 2
    told = capsys.readouterr().err
    assert "unknown judge 'bleu'" in told and "macro_f1" in told and "majority" not in told
    assert not (tmp_path / "other").exists()
    assert main([*WORDS, "--judge", "loss", "--out", str(tmp_path / "out")]) == 2
    assert "judged by its macro_f1, not by its loss" in capsys.readouterr().err


def test_auto_chooses_by_the_tuning_runs_before_the_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, "--judge", "auto", "--out", str(tmp_path / "none")]) == 2
    assert "--judge auto chooses a metric from the tuning runs; add --tune 3" in capsys.readouterr().err
    words = [*WORDS, "--judge", "auto", "--tune", "3", "--out", str(tmp_path / "out")]
    assert main([*words, "--margin", "1"]) == 2
    assert "cannot be used with --judge auto" in capsys.readouterr().err
    assert main(words) == 0
    told = capsys.readouterr().err
    plan = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert plan["judge"] == "auto" and plan["signals"].keys() == {"accuracy", "loss"}
    assert plan["judged_by"] == max(plan["signals"], key=plan["signals"].get)
    assert plan["tuning"]["metric"] == "loss" and f"judged by the {plan['judged_by']}" in told
    study = read(tmp_path / "out").study
    assert study.metric.name == plan["judged_by"] and study.tuned_by.name == "loss"
    shutil.rmtree(tmp_path / "out" / "parallel" / "seed-1")
    assert main(words) == 0
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["signals"] == plan["signals"]


def test_names_of_metrics_and_their_signal() -> None:
    accuracy = METRICS["accuracy"]
    assert judge_named("metric", accuracy, ()) is accuracy and judge_named("accuracy", accuracy, ()) is accuracy
    assert judge_named("chrf", METRICS["bleu"], ["bleu", "chrf"]) is METRICS["chrf"]
    with pytest.raises(OdeumError, match="unknown judge 'majority_accuracy'"):
        judge_named("majority_accuracy", accuracy, ["accuracy", "majority_accuracy"])
    straight, bent = [0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2, 0.14]
    noise = math.sqrt(sum((x - y) ** 2 for x, y in zip(bent, [0.392, 0.304, 0.216, 0.128], strict=True)) / 2)
    spread = math.sqrt(0.5) * 0.1
    assert signal_over_noise({"a": 1.0, "b": 1.1}, [bent]) == pytest.approx(spread / noise)
    assert signal_over_noise({"a": 1.0, "b": 1.1}, [straight]) == pytest.approx(spread / 0.05), "half of their step"
    assert signal_over_noise({"a": 1.0}, [bent]) is None and signal_over_noise({"a": 1.0, "b": 1.1}, []) is None


def test_bits_per_byte_are_the_same_for_other_tokens_of_a_uniform_model(tmp_path: Path) -> None:
    """Left out where unknown words do not spell the text."""
    text = "".join(f"line {i} says abc{i * 7919 % 1000} and déjà {i % 13}\n" for i in range(900))
    (tmp_path / "corpus.txt").write_text(text, encoding="utf-8")
    for tokens in ("bpe", "characters"):
        task = open_task(str(tmp_path / "corpus.txt"), tokens=tokens, length=32)
        held = {part: task.tokens.decode(task.streams[part].tolist()) for part in ("valid", "test")}
        assert task.bytes_of == {part: len(each.encode()) for part, each in held.items()}, tokens
    words = open_task(str(tmp_path / "corpus.txt"), tokens="words", length=32, vocabulary=20)
    assert words.bytes_of == {}


def decisions(values: np.ndarray, futility: bool) -> dict[int, str]:
    scores = {row: dict(enumerate(map(float, each))) for row, each in enumerate(values)}
    criterion = Criterion(True, Margin(1.0), Seeds.parse("auto"), futility=futility)
    pairs = to_baseline(range(len(values)), 0)
    return {pair[0]: each.verdict.word for pair, each in judge(scores, pairs, criterion).items()}


def test_hopeless_rows_are_stopped_and_good_ones_are_not() -> None:
    """Rows at 0, 0.5, 1.5 and −2.5 margins whose runs vary by 1.5 margins: the third may be shown, the last is not."""
    random = np.random.default_rng(3)
    stopped, better = dict.fromkeys(range(1, 5), 0), [0, 0]
    for _ in range(60):
        values = 1.5 * random.standard_normal((5, 12)) + np.array([0, 0, 0.5, 1.5, -2.5])[:, None]
        plain, early = decisions(values, False), decisions(values, True)
        for row, word in early.items():
            stopped[row] += word == STOPPED
            assert word == STOPPED or word.split()[0] in ("better", "worse", "undecided", "practically")
        better[0] += plain[3].startswith("better")
        better[1] += early[3].startswith("better")
        assert STOPPED not in plain.values()
    assert stopped[4] > 50 > stopped[3] and better[1] >= 0.7 * better[0] > 5
