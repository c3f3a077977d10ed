"""--vary split: each seed holds other examples out, of data that nobody has split; intervals know of the overlap."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import findings

from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.data.splits import consecutive
from odeum.lab.study.judge import more_seeds
from odeum.lab.study.sentences import notes, warnings
from odeum.lab.study.statistics import differences
from odeum.lab.tasks import open_task

TINY = ["--model.width", "16", "--model.heads", "2", "--model.depth", "1", "--train.steps", "2", "--jobs", "1"]


def table(path: Path, rows: int = 60) -> Path:
    path.write_text("text,label\n" + "".join(f"word{i} and more,{'ab'[i % 2]}\n" for i in range(rows)))
    return path


def sources(folder: Path) -> dict[str, tuple[list[str], dict[str, Any]]]:
    table(folder / "texts.csv")
    (folder / "numbers.csv").write_text("text,price\n" + "".join(f"thing {i},{i * 1.5}\n" for i in range(60)))
    (folder / "prose.txt").write_text("".join(f"line {i} of a text that goes on\n" for i in range(400)))
    (folder / "pairs.tsv").write_text("".join(f"a cat number {i}\tein Tier {i}\n" for i in range(60)))
    files = {"classification": "texts.csv", "regression": "numbers.csv", "language": "prose.txt"}
    found = {kind: ([str(folder / name)], {"kind": kind}) for kind, name in files.items()}
    return found | {"translation": ([str(folder / "pairs.tsv")], {"kind": "translation"}), "images": (["digits"], {})}


@pytest.mark.parametrize("kind", ["classification", "regression", "language", "translation", "images"])
def test_another_fold_holds_out_as_many_other_examples(kind: str, tmp_path: Path) -> None:
    source, options = sources(tmp_path)[kind]
    usual, first, again = (open_task(*source, **options, **more) for more in ({}, {"fold": 1}, {"fold": 1}))
    assert open_task(*source, **options, fold=0).fingerprint() == usual.fingerprint()
    assert first.fingerprint() == again.fingerprint() != usual.fingerprint()
    if kind != "language":
        assert first.sizes() == usual.sizes()
    else:
        assert first.sizes()["test"] == pytest.approx(usual.sizes()["test"], rel=0.3)


def test_a_turned_text_is_the_same_text() -> None:
    text = "".join(f"line {i}\n" for i in range(100))
    for fold in range(5):
        assert sorted("".join(consecutive(text, fold=fold)).splitlines()) == sorted(text.splitlines())
    assert len({consecutive(text, fold=fold)[2] for fold in range(5)}) == 5
    assert consecutive("one line alone", fold=3) == consecutive("one line alone")


def test_data_with_a_test_part_has_one_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, test = table(tmp_path / "train.csv"), table(tmp_path / "test.csv", 20)
    with pytest.raises(OdeumError, match="fold=2 is not possible, because the data has its own test part"):
        open_task(train, test, fold=2)
    words = ["--vary", "split", "--architectures", "sequential,parallel", "--out", str(tmp_path / "out"), *TINY]
    assert main(["compare", str(train), str(test), *words]) == 2
    assert "has its own test part" in capsys.readouterr().err
    assert main(["compare", "listops", "--data.count", "50", *words]) == 2
    assert "--vary split needs data without fixed parts" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("without_plots")
def test_each_seed_has_its_split_and_the_plan_remembers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["compare", "digits", "--architectures", "sequential,parallel", "--seeds", "2", "--out", str(out), *TINY]
    assert main([*words, "--vary", "split"]) == 0
    prints = {path.parent.parent.name + path.parent.name: json.loads(path.read_text())["fingerprint"]
              for path in out.glob("*/seed-*/run.json")}  # fmt: skip
    assert prints["sequentialseed-0"] == prints["parallelseed-0"] != prints["sequentialseed-1"]
    assert prints["sequentialseed-1"] == prints["parallelseed-1"]
    plan = json.loads((out / "comparison.json").read_text())
    assert plan["vary"] == "split" and plan["overlap"] == pytest.approx(359 / 1259)
    found = findings(out)
    assert "Nadeau and Bengio: the variance of a mean has 0.29 beside 1/n" in " ".join(notes(found))
    assert not any("not one experiment" in warning for warning in warnings(found))
    capsys.readouterr()
    assert main(words) == 2
    assert "whose seeds vary the split, not the seed" in capsys.readouterr().err


def test_overlap_widens_and_may_leave_a_pair_open_for_ever() -> None:
    scores = {"a": {0: 0.9, 1: 0.91, 2: 0.9}, "b": {0: 0.905, 1: 0.905, 2: 0.91}}
    (plain,), (wide,) = (differences(scores, [("b", "a")], overlap=x).values() for x in (0.0, 0.25))
    assert plain.high is not None and wide.high is not None
    assert (wide.high - wide.mean) / (plain.high - plain.mean) == pytest.approx(math.sqrt((1 / 3 + 0.25) / (1 / 3)))
    assert more_seeds(plain, 0.004) is not None and more_seeds(wide, 0.004) is None
