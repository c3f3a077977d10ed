"""A ladder of sizes: equal head width, equal examples per parameter, one report written again from the folder."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from synthetic_runs import write_plan, write_run

from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.study.ladder_report import headline, ladder_table, read_ladder, write
from odeum.lab.study.runs import keep_comparison
from odeum.lab.study.sizes import Size, folder_of, parse_sizes, write_ladder
from odeum.models.settings import Language

MODEL = Language(width=64, heads=4, depth=6)


@pytest.mark.parametrize("number", [3, 4])
def test_default_sizes_scale_width_and_depth_at_constant_head_width(number: int) -> None:
    model = Language(width=256, heads=16, depth=12)
    sizes = parse_sizes(str(number), model)
    assert len(sizes) == number and sizes[-1] == Size(256, 12)
    for before, after in pairwise(sizes):
        assert before.width < after.width and before.depth < after.depth
    for size in sizes:
        scaled = size.of(model)
        assert scaled.width // scaled.heads == 16 and scaled.width % scaled.heads == 0
    parameters = [size.width**2 * size.depth for size in sizes]
    assert 12 < (parameters[-1] / parameters[0]) ** 2 < 20


def test_feedforward_and_decoder_scale_with_the_size() -> None:
    from odeum.models.settings import Translation

    scaled = Size(32, 3).of(Translation(width=64, heads=4, depth=6, hidden=128, decoder_depth=4))
    assert (scaled.hidden, scaled.heads, scaled.decoder_depth) == (64, 2, 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2", "2 sizes cannot show a trend"),
        ("-1", "-1 sizes cannot show a trend"),
        ("64x4", "1 size cannot show a trend"),
        ("60x4,64x5,96x6", "must be a multiple of the head width 16"),
        ("96x6,64x4,128x8", "64x4 is not larger than 96x6"),
        ("64x4,64x4,96x6", "64x4 is not larger than 64x4"),
        ("64x0,96x6,128x8", "'64x0' is not a size"),
        ("12", "there are not enough sizes below 64x6"),
    ],
)
def test_sizes_that_cannot_be_are_refused(text: str, told: str) -> None:
    with pytest.raises(OdeumError, match=told):
        parse_sizes(text, MODEL)


def ladder(root: Path, advantage: tuple[float, ...], noise: float = 0.001, seeds: int = 4) -> Path:
    """The baseline's loss falls by 0.2 per e-fold of cost; the other one is lower by `advantage` at each size."""
    import math

    sizes = [Size(32 * (i + 1), 2 * (i + 1)) for i in range(len(advantage))]
    epochs = {size: 0.5 * 4**place for place, size in enumerate(sizes)}
    write_ladder(root, epochs, "digits", "odeum compare digits --sizes 3")
    for place, size in enumerate(sizes):
        steps = 100 * 4**place
        loss = 3.0 - 0.2 * math.log(steps)
        for seed in range(seeds):
            luck = noise * (seed - 1.5)
            for name, value in (("sequential", loss + luck), ("parallel", loss + 1.3 * luck - advantage[place])):
                write_run(folder_of(root, size), name, seed, value, metric="loss", higher_is_better=False, steps=steps)
        write_plan(folder_of(root, size), ["sequential", "parallel"], match="time", seeds=seeds)
    return root


@pytest.mark.usefixtures("without_plots")
def test_a_constant_gain_holds_and_is_recommended(tmp_path: Path) -> None:
    read = read_ladder(ladder(tmp_path, (0.1, 0.1, 0.1)))
    for place in range(3):
        gain = read.gains["parallel", place]
        assert gain.log == pytest.approx(0.5, abs=0.03) and gain.low is not None and gain.low > 0.3  # 0.1 / 0.2
    assert read.trends["parallel"].word == "holds"
    assert headline(read).startswith("Use `parallel` on digits") and "holds with size" in headline(read)


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(("advantage", "word"), [((0.02, 0.06, 0.1), "grows"), ((0.1, 0.06, 0.02), "shrinks")])
def test_a_gain_that_changes_has_its_word(tmp_path: Path, advantage: tuple[float, ...], word: str) -> None:
    assert read_ladder(ladder(tmp_path, advantage)).trends["parallel"].word == word


@pytest.mark.usefixtures("without_plots")
def test_a_slower_architecture_is_not_recommended(tmp_path: Path) -> None:
    read = read_ladder(ladder(tmp_path, (-0.1, -0.1, -0.1)))
    assert headline(read).startswith("Keep `sequential` on digits") and "`parallel` needs more time" in headline(read)


def test_files_hold_the_same_gains_and_a_missing_size_is_named(tmp_path: Path) -> None:
    result, page = write(ladder(tmp_path, (0.1, 0.1, 0.1, 0.1, 0.1)))
    text = page.read_text()
    assert "gain holds" in text and text.count('class="lane"') == 5 and "≈" not in text
    assert (tmp_path / "plots" / "curve.svg").exists() and "Not a result" in text  # a fit from five sizes on
    assert len((tmp_path / "ladder.csv").read_text().splitlines()) == 1 + len(result.sizes)
    folder_of(tmp_path, "160x10").rename(tmp_path / "elsewhere")
    again = read_ladder(tmp_path)
    assert again.missing == ("160x10",) and "sizes are missing (160x10)" in headline(again)


@pytest.mark.usefixtures("without_plots")
def test_a_kept_ladder_has_the_same_gains(tmp_path: Path) -> None:
    root = ladder(tmp_path / "runs", (0.1, 0.12, 0.15))
    write(root)
    keep_comparison(root, tmp_path / "kept")
    files = {str(path.relative_to(tmp_path / "kept")) for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert "ladder.json" in files and not any("seed-" in name for name in files)
    kept, made = read_ladder(tmp_path / "kept"), read_ladder(root)
    assert kept.gains == made.gains and ladder_table(kept, "md") == ladder_table(made, "md")
    assert "0.5" in ladder_table(kept, "md") and kept.epochs == {"32x2": 0.5, "64x4": 2.0, "96x6": 8.0}


TUNED = {
    "settings": ["learning_rate"], "defaults": [0.004], "runs": 3,
    "rows": {name: {"values": [[[0.004], 0.9]], "seconds": 30.0} for name in ("sequential", "parallel")},
}  # fmt: skip


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(
    ("noise", "plan", "wanted"),
    [
        (0.001, {}, "--seeds 4 --out NEW --tune 3 "),
        (0.001, {"tuning": TUNED}, "--seeds 4 --out NEW --sizes 32x2,64x4,96x6,128x8 "),
        (0.5, {"tuning": TUNED}, "odeum compare digits --sizes 3 --seeds 8 "),
        (0.5, {"tuning": TUNED, "seeds": "auto:4"}, "odeum compare digits --sizes 3 --seeds auto:8 --out NEW "),
    ],
)
def test_the_headline_of_a_ladder_ends_with_the_next_command_and_its_time(
    noise: float, plan: dict[str, object], wanted: str, tmp_path: Path
) -> None:
    ladder(tmp_path, (0.1, 0.1, 0.1), noise)
    for path in tmp_path.glob("size-*/comparison.json"):
        command = {"command": "odeum compare digits --sizes 3"}
        path.write_text(json.dumps(json.loads(path.read_text()) | command | plan))
    told = headline(read_ladder(tmp_path)).replace("`", "")
    assert re.search(r"Next: odeum compare .* \(about [\d.]+ (s|min|h) of training\)\.$", told), told
    assert wanted in told, told


@pytest.mark.usefixtures("without_plots")
def test_an_interrupted_ladder_continues_and_says_how_long(tmp_path: Path) -> None:
    ladder(tmp_path, (0.1, 0.1, 0.1))
    shutil.rmtree(folder_of(tmp_path, "96x6"))
    told = headline(read_ladder(tmp_path))
    assert "sizes are missing (96x6)" in told and re.search(r"\(continues; about [\d.]+ (min|h) of training\)", told)


@pytest.mark.usefixtures("without_plots")
def test_the_picture_of_a_ladder_has_the_verdict_of_each_size_and_the_trend(tmp_path: Path) -> None:
    _, page = write(ladder(tmp_path, (0.1, 0.1, 0.1), noise=0.5))
    text = page.read_text()
    assert "trend undecided" in text and "gain undecided" in text and text.count("undecided: about") >= 3


def test_a_baseline_that_diverged_leaves_the_gains_undecided(tmp_path: Path) -> None:
    ladder(tmp_path, (0.1, 0.1, 0.1))
    for path in (tmp_path / "size-64x4" / "sequential").rglob("result.json"):
        content = json.loads(path.read_text())
        lost = {"loss": None}
        path.write_text(json.dumps(content | {"valid": lost, "test": lost, "failed": "diverged at step 3"}))
    read = read_ladder(tmp_path)
    assert read.problem is not None and "diverged in every seed at size 64x4" in read.problem
    assert "No gains on digits yet" in headline(read) and read.findings[0].row("parallel").verdict != "unfinished"


@pytest.mark.usefixtures("without_plots")
def test_a_ladder_is_trained_resumed_and_reported_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        *("compare", "digits", "--architectures", "sequential,parallel", "--seeds", "2", "--jobs", "1", "--quiet"),
        *("--sizes", "8x1,16x2,24x3", "--model.width", "24", "--model.heads", "3", "--model.depth", "3"),
        *("--train.steps", "30", "--out", str(tmp_path)),
    ]
    assert main([*words, "--dry-run"]) == 0
    told = capsys.readouterr().err
    assert "size 8x1:" in told and "all sizes: about" in told and "power to detect a gain that changes" in told
    assert main(words) == 0
    capsys.readouterr()
    runs = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert len(runs) == 3 * 2 * 2
    steps = [json.loads((tmp_path / f"size-{size}/sequential/seed-0/result.json").read_text())["steps"]
             for size in ("8x1", "16x2", "24x3")]  # fmt: skip
    assert steps[0] < steps[1] < steps[2] == 30
    first = (tmp_path / "ladder.csv").read_text()
    assert main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")} == runs
    (tmp_path / "ladder.csv").unlink()
    assert main(["report", str(tmp_path), "--format", "json"]) == 0
    assert (tmp_path / "ladder.csv").read_text() == first
    out = capsys.readouterr().out
    assert [record["size"] for record in json.loads(out[out.index("[\n") :])] == ["8x1", "16x2", "24x3"]
    assert main([*words[:-1], str(tmp_path / "again"), "--step-times", str(tmp_path)]) == 0
    assert (tmp_path / "again" / "ladder.csv").read_text() == first
    capsys.readouterr()
    assert (
        main([*words[: words.index("8x1,16x2,24x3")], "8x1,16x2,32x3", *words[words.index("8x1,16x2,24x3") + 1 :]]) == 2
    )
    assert "holds a ladder of the sizes 8x1, 16x2, 24x3" in capsys.readouterr().err
