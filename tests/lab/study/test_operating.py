"""`odeum surgery`: halves, looks, verdicts, saved runs, interruption."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from odeum import OdeumError, load
from odeum.lab.cli import main
from odeum.lab.study.judge import Verdict
from odeum.lab.study.operating import (
    SURGERY_EXAMPLES,
    Row,
    Store,
    Surgery,
    halves,
    influences,
    look_error,
    opened,
    paired,
)
from odeum.lab.study.statistics import ERROR, Ratio, paired_mean
from odeum.lab.study.surgery_report import frontier, verdict_text
from odeum.lab.tasks import open_task
from odeum.lab.train.origin import write_run
from odeum.models import assemble
from odeum.registry.spelling import parse
from odeum.storage import checksum
from odeum.surgery import Cost


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A digits run of four layers, of which the two in the middle share their weights."""
    run = tmp_path_factory.mktemp("surgery") / "digits"
    words = ["train", "digits", "--model.depth", "4", "--model.width", "32", "--train.steps", "150"]
    words += ["--architecture", "sequential:schedule=0-1/1-2"]
    assert main([*words, "--out", str(run)]) == 0
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def rewrite(run: Path, order: list[int], silent: int) -> None:
    """The run with a set of weights of its own at each depth, those of these layers; one layer changes nothing."""
    trained: Any = load(run)
    task = trained._reopened()
    model: Any = assemble(parse("sequential"), replace(trained.model.settings, depth=len(order)))
    with torch.no_grad():
        model.load_state_dict(trained.model.state_dict(), strict=False)
        for flow, index in zip(model.stack.flows, order, strict=True):
            flow.load_state_dict(trained.model.stack.flows[index].state_dict())
        for parameter in model.stack.flows[silent].parameters():
            parameter.zero_()
    shutil.rmtree(run)
    write_run(run, model.eval(), task, {}, "")


def result_of(run: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["surgery", str(run), "--format", "json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def rows_by_edit(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["edit"]: row for row in result["rows"]}


def test_finds_a_zeroed_and_a_duplicated_layer(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Skipping the zeroed layer changes no loss; sharing the duplicated one changes none and saves its weights."""
    rewrite(run, [0, 1, 1, 0, 2], silent=3)
    result = result_of(run, capsys, "--edits", "skip,share,average")
    rows = rows_by_edit(result)
    skipped = rows["skip layer 3"]
    assert skipped["verdict"] == "practically equal" and abs(skipped["change"]) < 1e-6
    shared = next(
        row
        for label, row in rows.items()
        if label
        in ("layer 2 with the weights of 1", "layer 1 with the weights of 2", "layers 2 and 3 with their mean weights")
    )
    assert shared["verdict"] == "practically equal" and abs(shared["change"]) < 1e-6
    assert shared["parameters"] < rows["as trained"]["parameters"]
    assert result["headline"][0].startswith("Yes, 1 of 5 evaluations can be saved: `skip layer 3`")


def test_influence_is_zero_where_nothing_moves(run: Path) -> None:
    rewrite(run, [0, 1, 0, 2], silent=2)
    loaded = load(run)
    batch = loaded._reopened().sample(16)
    table = influences(loaded.model, loaded.model.stack, batch)  # ty: ignore[invalid-argument-type]
    assert table[2][2] == pytest.approx(0, abs=1e-6) and table[1][2] == pytest.approx(table[1][1], abs=1e-6)
    assert all(table[i][i] > 1e-4 for i in (0, 1, 3))


def test_halves_are_a_function_of_content() -> None:
    keys = [checksum(bytes([i % 40])) for i in range(60)]  # twenty examples occur twice
    screen, confirm = halves(keys)
    rows = torch.cat([screen, confirm]).tolist()
    assert len(rows) == len(set(rows)) == 40 and {keys[i] for i in rows} == set(keys)
    again = halves(list(reversed(keys)))
    assert {keys[i] for i in screen} == {list(reversed(keys))[i] for i in again[0]}


def test_classes_of_other_data_are_those_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other data may lack a class of the run; a class is found by its name or its number, never by its place."""

    def table(name: str, labels: tuple[str, ...]) -> str:
        rows = (f"{each} sir number {i},{each}" for i in range(80) for each in labels)
        (tmp_path / name).write_text("text,label\n" + "\n".join(rows) + "\n")
        return str(tmp_path / name)

    run, own = str(tmp_path / "run"), table("own.csv", ("maybe", "no", "yes"))
    words = ["train", own, "--train.steps", "60", "--model.depth", "2", "--model.width", "16", "--model.heads", "2"]
    assert main([*words, "--out", run]) == 0
    base = [table(f"{i}.csv", labels) for i, labels in enumerate((("yes", "no"), ("2", "1"), ("perhaps", "no")))]
    losses = [result_of(Path(run), capsys, name, "--edits", "skip")["rows"][0]["loss"] for name in (own, base[0])]
    assert losses[0] < 0.2 and losses[1] < 0.2  # numbered by their place, "no" would be taken for "maybe"
    task: Any = open_task(base[1], like=load(run)._reopened())
    task.number_as(["maybe", "no", "yes"], "run")
    assert task.classes == ["maybe", "no", "yes"] and set(task.parts["train"][1].tolist()) == {1, 2}
    capsys.readouterr()
    assert main(["surgery", run, base[2]]) == 2
    assert "'perhaps' is a class of the data but not one of the 3 classes of" in capsys.readouterr().err


def test_groups_lie_in_one_half() -> None:
    keys = [checksum(bytes([i % 90])) for i in range(100)]  # ten examples occur twice
    groups = torch.arange(100) // 5
    screen, confirm = halves(keys, groups)
    assert len(screen) + len(confirm) == 90 and len(confirm) > 20 and len(screen) > 20
    assert set(groups[screen].tolist()).isdisjoint(groups[confirm].tolist())
    assert halves(keys, torch.arange(100))[0].tolist() != screen.tolist()


def test_windows_of_one_document_count_as_one() -> None:
    """With what documents have in common, intervals over windows are wrong far too often and over documents are not."""
    random = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, 15, (40,), generator=random)
    groups = torch.arange(40).repeat_interleave(sizes)
    base, wrong = torch.ones(len(groups), dtype=torch.float64), {"windows": 0, "documents": 0}
    for _ in range(300):
        common = torch.randn(40, generator=random, dtype=torch.float64)[groups]
        losses = base + common + torch.randn(len(groups), generator=random, dtype=torch.float64)
        for name, each in (("windows", None), ("documents", groups)):
            change = paired(losses, base, 0.05, each)
            wrong[name] += not change.low <= 0 <= change.high  # ty: ignore[unsupported-operator]
    assert wrong["windows"] > 45 and wrong["documents"] < 27  # 15 is five percent
    alone = paired(losses, base, 0.05, torch.arange(len(groups)))
    assert (alone.low, alone.high) == pytest.approx((paired(losses, base, 0.05).low, paired(losses, base, 0.05).high))


def test_one_long_document_that_changes_most_is_not_the_only_one() -> None:
    """All documents change by about one, the longest by most. Where it alone changes, there is no interval."""
    groups = torch.arange(20).repeat_interleave(torch.tensor([5] * 19 + [20]))
    base, losses = torch.ones(115, dtype=torch.float64), torch.linspace(1.9, 2.0, 115, dtype=torch.float64)
    losses[95:] += 0.5
    assert math.isfinite(paired(losses, base, 0.05, groups).high)  # ty: ignore[invalid-argument-type]
    alone = base.clone()
    alone[95:] += 1
    change = paired(alone, base, 0.05, groups)
    assert change.high == math.inf
    verdict = Verdict("undecided", 1)
    assert verdict_text(Row(None, Cost(4, 100, 4), {}, 1.0, 1.0, change, verdict)) == "undecided"


def corpus(folder: Path, files: int, lines: int) -> Path:
    for number in range(files):
        text = "".join(f"word{number} word{number} is said in line {line}.\n" for line in range(lines))
        (folder / f"text-{number:03}.txt").write_text(text)
    return folder


def test_the_documents_of_windows(tmp_path: Path) -> None:
    """A window belongs to the file, or the article of WikiText, of its middle; one long text is cut into blocks."""
    task: Any = open_task(corpus(tmp_path, 70, 60), kind="language", length=16, context=0, tokens="words")
    task.test_on_everything()
    grouped = task.example_groups("test")
    assert grouped.unit == "documents" and len(grouped.numbers) == len(task.example_keys("test"))
    rows = torch.cat([batch["input_ids"] for batch in task.windows("test") if batch["input_ids"].shape[1] == 16])
    first = [re.findall(r"word\d+", task.tokens.decode(ids.tolist())) for ids in rows]
    labelled = zip(first, grouped.numbers.tolist(), strict=False)
    own = {(names[0], number) for names, number in labelled if len(set(names)) == 1}
    assert len(own) == len({name for name, _ in own}) == len({number for _, number in own}) == 70

    (single := tmp_path / "single.txt").write_text("".join(f"number {i} is {i % 7}.\n" for i in range(6000)))
    task = open_task(single, kind="language", length=16, context=0)
    blocks: Any = task.example_groups("test")
    assert blocks.unit == "blocks of neighbouring windows" and len(blocks.numbers.unique()) == 64
    assert blocks.numbers.tolist() == sorted(blocks.numbers.tolist())
    task = open_task(single, kind="language", length=16, lines=True)
    assert task.example_groups("test") is None

    (wiki := tmp_path / "wiki").mkdir()
    for part, count in (("train", 50), ("valid", 40), ("test", 40)):
        texts = (f" \n = {part} {i} = \n \n = = Part = = \n \n" + " some words here . \n" * 30 for i in range(count))
        (wiki / f"wiki.{part}.tokens").write_text("".join(texts))
    articles: Any = open_task(wiki, kind="language", length=16, context=0)
    assert [len(articles.documents[part]) for part in ("train", "test")] == [51, 41]  # the first line precedes a title
    assert articles.example_groups("test").unit == "documents"


def test_surgery_of_running_text_counts_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(corpus(tmp_path, 70, 60))
    words = ["train", data, "--kind", "language", "--data.length", "16", "--train.steps", "3", "--model.depth", "3"]
    assert main([*words, "--model.width", "16", "--model.heads", "2", "--out", str(tmp_path / "run")]) == 0
    result = result_of(tmp_path / "run", capsys, "--edits", "skip", "--screen", "1")
    assert result["groups"]["unit"] in ("documents", "blocks of neighbouring windows")
    assert result["groups"]["confirm"] < result["examples"]["confirm"]
    assert main(["surgery", str(tmp_path / "run"), "--edits", "skip", "--screen", "1"]) == 0
    assert "no group lies in both halves" in capsys.readouterr().out


def test_looks_spend_the_error_once(tmp_path: Path) -> None:
    assert sum(look_error(k) for k in range(1, 60)) <= ERROR
    store = Store(tmp_path)
    first = store.look(["a", "b"])
    assert first == {"a": (1, look_error(1) / 2), "b": (1, look_error(1) / 2)}
    assert store.look(["b", "a"]) == first and len(store.looks()) == 1  # the same look again
    assert store.look(["a", "c"]) == {"a": (1, look_error(1) / 2), "c": (2, look_error(2))}
    with open(tmp_path / "looks.jsonl", "ab") as file:
        file.write(b'{"edits": ["d"], "checks')  # a kill while a look was recorded
    assert store.look(["e"])["e"] == (4, look_error(4))


def test_more_examples_are_another_look(tmp_path: Path) -> None:
    """Looks at a set of examples count for every set that shares some; another set starts anew."""

    def look(name: str, examples: str, *edits: str) -> list[tuple[int, float]]:
        with opened(tmp_path, name, list(examples)) as store:
            (store.directory / SURGERY_EXAMPLES).write_text(json.dumps({"keys": list(examples)}))
            return list(store.look(edits).values())

    assert look("one", "abc", "e") == [(1, look_error(1))]
    assert look("two", "abcd", "e", "f") == [(2, look_error(2) / 2)] * 2
    assert look("one", "abc", "e") == [(1, look_error(1))]  # what was confirmed keeps its interval
    assert look("one", "abc", "g") == [(3, look_error(3))]
    assert look("other", "xyz", "e") == [(1, look_error(1))]
    assert look("all", "abcxyz", "e") == [(5, look_error(5))]


def test_a_surgery_with_more_examples_is_another_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"the {colour} fox {i} sleeps" for i in range(40) for colour in ("red", "old")]
    (tmp_path / "less.txt").write_text("\n".join(lines[:60]))
    (tmp_path / "more.txt").write_text("\n".join(lines))
    words = ["train", str(tmp_path / "more.txt"), "--kind", "masked", "--train.steps", "2", "--model.depth", "2"]
    assert main([*words, "--model.width", "16", "--model.heads", "2", "--out", str(tmp_path / "run")]) == 0
    cut = ["--edits", "skip", "--screen", "1"]
    assert result_of(tmp_path / "run", capsys, str(tmp_path / "less.txt"), *cut)["looks"] == 1
    assert result_of(tmp_path / "run", capsys, str(tmp_path / "more.txt"), *cut)["looks"] == 2


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_a_narrow_terminal_shows_every_interval(
    columns: str, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    rows = result_of(run, capsys, "--edits", "skip", "--screen", "1")["rows"]
    assert main(["surgery", str(run), "--edits", "skip", "--screen", "1"]) == 0
    table = capsys.readouterr().out.split("evaluations can be saved")[0]
    for row in rows[1:]:
        assert f"{row['change']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}]" in table


def test_a_diverged_edit_has_no_interval() -> None:
    change = paired(torch.tensor([1.0, float("nan"), 2.0]), torch.ones(3), 0.05)
    assert change.problem == "diverged" and change.low is None


def test_intervals_are_no_shorter_than_students_and_longer_on_the_side_of_the_tail() -> None:
    random = torch.Generator().manual_seed(0)
    base = torch.ones(200, dtype=torch.float64)
    skewed = base + torch.exp(torch.randn(200, generator=random, dtype=torch.float64))
    change, student = paired(skewed, base, 0.01), paired_mean((skewed - base).tolist(), 0.99)
    assert student is not None and None not in (change.low, change.high, student.low, student.high)
    assert change.low <= student.low and change.high > student.high  # ty: ignore
    assert change.high - change.mean > change.mean - change.low  # ty: ignore
    symmetric = paired(base + torch.linspace(-1, 1, 200, dtype=torch.float64), base, 0.05)
    assert symmetric.high == pytest.approx(-symmetric.low)  # ty: ignore


def test_a_change_of_one_example_has_no_interval() -> None:
    base = torch.ones(50, dtype=torch.float64)
    one = base.clone()
    one[3] += 5
    assert paired(one, base, 0.05).high == math.inf
    assert paired(base, base, 0.05).high == 0.0  # the same model
    rounding = base.clone()
    rounding[3] += 1e-7
    assert paired(rounding, base, 0.05).high < 1e-6  # ty: ignore


def test_confirmed_losses_are_those_of_the_other_half(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(run, capsys, "--edits", "skip", "--screen", "1")
    loaded = load(run)
    task = loaded._reopened()
    screen, confirm = halves(task.example_keys("test"))
    _, evidence = task.select("test", confirm).examine(loaded.model, "valid")
    assert evidence is not None
    row = result["rows"][0]
    assert row["loss"] == pytest.approx(float(evidence.losses.mean()), rel=1e-6)
    assert result["examples"] == {"screen": len(screen), "confirm": len(confirm)}
    assert set(confirm.tolist()).isdisjoint(screen.tolist())
    low, high = result["rows"][1]["low"], result["rows"][1]["high"]
    assert low < result["rows"][1]["change"] < high
    assert result["rows"][1]["level"] == pytest.approx(1 - look_error(1) / (len(result["rows"]) - 1))


def test_a_repeated_surgery_is_the_same_look(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = result_of(run, capsys, "--edits", "skip", "--screen", "1")
    assert result_of(run, capsys, "--edits", "skip", "--screen", "1") == first
    second = result_of(run, capsys, "--edits", "skip,parallel", "--screen", "1")
    assert second["looks"] == 2
    rows, before = rows_by_edit(second), rows_by_edit(first)
    for edit in before.keys() & rows.keys():  # what was confirmed keeps its interval
        assert rows[edit] == before[edit]
    assert any(row["look"] == 2 for row in second["rows"])


def test_saved_runs_load_and_score_as_measured(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(run, capsys, "--edits", "skip,repeat", "--screen", "2")
    task = load(run)._reopened()
    confirm = task.select("test", halves(task.example_keys("test"))[1])
    for number, row in list(enumerate(result["rows"]))[1:3]:
        out = tmp_path / f"saved{number}"
        words = ["surgery", str(run), "--edits", "skip,repeat", "--screen", "2"]
        assert main([*words, "--save", str(out), "--row", str(number)]) == 0
        saved = load(out)
        _, evidence = confirm.examine(saved.model, "valid")
        assert evidence is not None and float(evidence.losses.mean()) == pytest.approx(row["loss"], rel=1e-5)
        assert saved.evaluate("test")["loss"] > 0
    assert "odeum train digits --from" in capsys.readouterr().err
    words = ["train", "digits", "--from", str(out), "--train.steps", "2", "--out", str(tmp_path / "healed")]
    assert main(words) == 0
    assert len(load(tmp_path / "healed").model.stack.schedule) == len(saved.model.stack.schedule)  # ty: ignore
    capsys.readouterr()
    words = ["surgery", str(run), "--split", "valid", "--healed", str(tmp_path / "healed"), "--format", "json"]
    assert main(words) == 0
    judged = json.loads(capsys.readouterr().out)
    assert judged["look"] == 1 and judged["low"] <= judged["change"] <= judged["high"]
    assert main(["surgery", str(run), "--healed", str(tmp_path / "healed")]) == 2  # those examples chose the edit
    assert "examples of its own" in capsys.readouterr().err


def test_what_cannot_be_saved_is_said_before_the_work(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["surgery", str(run), "--save", str(tmp_path / "new"), "--edits"]
    assert main([*words, "parallel"]) == 2
    error = capsys.readouterr().err
    assert "--save can write none of these edits" in error and "screened" not in error
    rewrite(run, [0, 1, 1, 0, 2], silent=3)  # in parallel, a silent layer changes nothing either
    assert main([*words, "parallel,skip"]) == 0
    error = capsys.readouterr().err
    assert 0 <= error.find("4 parallel edits are measured, but --save cannot write them") < error.find("screened")
    assert len(load(tmp_path / "new").model.stack.schedule) < 5  # ty: ignore
    assert main(["surgery", str(run), "--edits", "parallel,skip"]) == 0
    assert "Measured, but --save cannot write it as a run: row" in capsys.readouterr().out


def test_a_time_that_may_be_noise_puts_no_row_on_the_frontier() -> None:
    base = Row(None, Cost(4, 100, 4), {}, 1.0, 1.0)
    slower, faster = (
        replace(base, loss=loss, time=Ratio(*ratio))
        for loss, ratio in ((1.1, (0.99, 0.97, 1.02)), (1.2, (0.8, 0.7, 0.9)))
    )
    assert frontier([base, slower, faster], "time") == [faster, base]


def test_outputs(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["surgery", str(run), "--edits", "skip,parallel", "--screen", "1", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "as trained" in shown and "page:" in shown
    assert {path.name for path in out.iterdir()} == {
        "page.html",
        "surgery.json",
        "surgery.md",
        "table.csv",
        "frontier.svg",
    }
    page = (out / "page.html").read_text()
    assert "<svg" in page and "Screened candidates" in page and "http" not in page.replace("http://www.w3.org", "")
    about = json.loads((out / "surgery.json").read_text())
    assert about["command"].startswith("odeum") and about["versions"]["torch"]
    assert (out / "table.csv").read_text().splitlines()[0].startswith("edit,evaluations,parameters")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--layers", "2-9"], "layers 0 to 3"),
        (["--layers", "x"], "3-8"),
        (["--edits", "drop"], "kind of edit"),
        (["--screen", "0"], "at least 1"),
        (["--row", "1"], "add --save DIRECTORY"),
        (["--margin", "-1"], "a positive number"),
        (["--split", "train"], "part of the data"),
        (["nowhere.txt"], "nowhere.txt"),
        (["--edits", "skip", "--screen", "1", "--save", "new", "--row", "99"], "is none of the"),
    ],
)
def test_mistakes_are_one_sentence(
    run: Path, words: list[str], reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    assert main(["surgery", str(run), *words]) == 2
    captured = capsys.readouterr()
    last = captured.err.strip().splitlines()[-1]
    assert reason in last and not (run.parent / "new").exists()
    assert bool(captured.out) == ("none of the" in reason)  # the table, so that a row can be chosen


def test_too_few_examples(run: Path) -> None:
    loaded = load(run)
    task = loaded._reopened().select("test", torch.arange(6))
    with pytest.raises(OdeumError, match="at least 8 different examples in each half"):
        Surgery(loaded, task, "test", Store(run))


def test_continues_after_sigkill(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed in the middle of screening and again later, the same command gives the same answer."""
    words = ["surgery", str(run), "--edits", "skip,repeat,share", "--screen", "4", "--format", "json"]
    for enough in (2, 8):
        process = subprocess.Popen(
            [sys.executable, "-m", "odeum", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        for _ in range(enough):
            assert process.stderr.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
    kept = sorted(run.glob("surgery/*/screen/*/scores.json"))
    assert len(kept) >= 2
    stamps = {path: path.stat().st_mtime_ns for path in kept}
    time.sleep(0.01)
    result = result_of(run, capsys, *words[2:6])
    assert stamps == {path: path.stat().st_mtime_ns for path in kept}  # nothing was measured twice
    assert result["looks"] == 1 and len(result["rows"]) > 1
