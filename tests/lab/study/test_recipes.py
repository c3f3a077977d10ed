"""The papers' tables: what their data says, and runs that are found again."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.commands.table import run as table_command
from odeum.lab.launch.inline import Inline
from odeum.lab.papers import TABLES, table_named
from odeum.lab.papers.base import PaperTable, Setting, TableRow
from odeum.lab.papers.document import answers, documents, with_results
from odeum.lab.papers.plan import BUDGET, plan, plan_grid, rates_around
from odeum.lab.study.drawings import claims_picture, marks_of
from odeum.lab.study.execute import TableRuns, Wanted, compare_with_kept
from odeum.lab.study.forecast import run_cost
from odeum.lab.study.judge import Claim, Seeds
from odeum.lab.study.metric import Margin
from odeum.lab.study.report import write_table
from odeum.lab.study.runs import PACES, Store, at_rate, kept_results, lines_of
from odeum.lab.study.tables import paper_table
from odeum.lab.study.tuning import SEED as TUNING_SEED
from odeum.lab.train.provenance import checkout, git_revision
from odeum.lab.train.settings import Training
from odeum.models import OdeumModel, build
from odeum.models.settings import Language, Vision

TINY = Vision(width=16, heads=2, depth=2, image_size=8, patch_size=4, channels=1, classes=10, pooling="mean")
DIGITS = Setting("digits", TINY, Training(steps=2, batch_size=16, evaluate_every=100))


def small_table(**changes: Any) -> PaperTable:
    table = PaperTable(
        name="test/table",
        title="A table",
        metric="accuracy",
        split="test",
        margin=Margin(0.01),
        rows=(
            TableRow("first", "parallel", "digits", paper={"accuracy": 0.7}),
            TableRow("second", "sequential", "digits", paper={"accuracy": 0.6}),
            TableRow("third", "rk4", "digits", control=True),
        ),
        claims=(Claim("the first is better", "first", "second"),),
        scales={"laptop": {"digits": DIGITS}, "paper": {"digits": DIGITS}},
        tune=0,
    )
    return replace(table, **changes)


class Nobody:
    def show(self, runs: Any, split: str = "test") -> None: ...

    def tell(self, number: int, event: Any) -> None: ...


def keep(store: Store, table: PaperTable, name: str, values: list[float]) -> None:
    """Files as runs leave them, with these accuracies."""
    recipe = table.spec(table.row(name), "laptop")
    for seed, value in enumerate(values):
        run = store.directory / "runs" / name / str(seed)
        run.mkdir(parents=True)
        content = {"valid": {"accuracy": value}, "test": {"accuracy": value}, "steps": 2}
        if not math.isfinite(value):
            content["failed"] = "the loss is nan"
        (run / "result.json").write_text(json.dumps(content))
        (run / "run.json").write_text(
            json.dumps({"parameters": 10, "command": "odeum table x --out /home/me --results=/tmp/r --seeds 3"})
        )
        store.keep(recipe, seed, run, "accuracy")


# the tables as data


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_row_has_a_run_of_its_own(table: PaperTable) -> None:
    for scale in table.scales:
        keys = [table.spec(row, scale).key for row in table.rows]
        assert len({*keys}) == len(keys)
    small = [table.spec(row, "laptop") for row in table.rows]
    for recipe in small:
        assert recipe.training.steps, "a run at the scale of a laptop ends by its steps: others are not repeatable"
    assert all(setting.ours for settings in table.scales.values() for setting in settings.values())


def test_every_row_can_be_built() -> None:
    """Each architecture in each kind of model, as deep as it will run and narrow."""
    recipes = [table.spec(row, "laptop") for table in TABLES.values() for row in table.rows]
    with torch.device("meta"):
        for recipe in {(recipe.architecture, type(recipe.model)): recipe for recipe in recipes}.values():
            build(recipe.architecture, replace(recipe.model, width=16, hidden=16, heads=2))


def test_tables_share_what_is_the_same_run() -> None:
    """Figure 2 and Table 1 do; Table 2 is of another regime."""
    one, two, figure = (table_named(f"zhong2022/{name}") for name in ("table1", "table2", "figure2"))
    keys = [
        t.spec(t.row(name), "laptop").key for t, name in ((one, "parallel"), (figure, "separate"), (two, "parallel"))
    ]
    assert keys[0] == keys[1] != keys[2]


def test_rows_of_claims_are_trained_in_fp32_and_tuned_and_their_regime_is_named() -> None:
    for table in TABLES.values():
        study = table.study("laptop")
        assert study.tunings.keys() == table.claimed
        for row in table.rows:
            setting, spec = table.scales["laptop"][row.setting], table.spec(row, "laptop")
            assert spec.training.precision == "fp32", row.name
            assert setting.regime or not table.claims, row.name
        assert all(f"Regime: {setting.regime}." in study.notes for setting in table.scales["laptop"].values()
                   if setting.regime)  # fmt: skip


def test_a_new_option_with_its_old_meaning_finds_the_old_runs() -> None:
    """What equals a default is no part of a recipe's identity."""
    recipe = small_table().spec(small_table().row("first"), "laptop")
    assert recipe.recipe["training"] == {"steps": 2, "batch_size": 16, "evaluate_every": 100}
    assert "dropout" not in recipe.recipe["model"]


def parameters(table: PaperTable, name: str) -> int:
    """At the paper's scale; those that no gradient reaches are counted too, as the published code has them."""
    recipe = table.spec(table.row(name), "paper")
    with torch.device("meta"):
        model = build(recipe.architecture, recipe.model)
    dead = sum(getattr(module, "dead_parameters", 0) for module in model.modules())
    return dead + sum(p.numel() for p in model.parameters())


def test_the_papers_column_of_parameters() -> None:
    """Zhong et al., Table 1: 5.5, 2.9, 2.0, 1.5, 1.1 and 0.7 million."""
    table = table_named("zhong2022/table1")
    names = ("parallel", "parallel-6", "parallel-4", "parallel-3", "parallel-2", "parallel-1")
    sizes = {name: parameters(table, name) for name in (*names, "sequential", "rk4")}
    assert [round(sizes[name] / 1e6, 1) for name in names] == [5.5, 2.9, 2.0, 1.5, 1.1, 0.7]
    assert sizes["sequential"] == sizes["rk4"] == sizes["parallel"] == 5_543_716
    costs = {name: run_cost(spec, 88) for name, spec in table.specs("paper").items() if name in ("parallel", "rk4")}
    # 12 layers on 197 tokens: 12 (12 n d² + 2 n² d), the patches, the head
    layers = 12 * (12 * 197 * 192**2 + 2 * 197**2 * 192)
    assert costs["parallel"].macs == layers + 196 * 768 * 192 + 192 * 100
    assert costs["rk4"].macs - costs["parallel"].macs == 3 * layers
    assert costs["parallel"].steps == 300 * 88


def test_transevolves_parameters() -> None:
    """Of the published code, recomputed: with the weights of it that no gradient reaches."""
    table = table_named("dutta2021/translation")
    wanted = {"full-1": 53.51, "full-2": 59.81, "random-1": 28.38, "random-2": 34.67, "transformer": 61.40}
    for name, millions in wanted.items():
        assert parameters(table, f"de-{name}") / 1e6 == pytest.approx(millions, abs=0.06), name


@pytest.mark.parametrize("table", [t for t in TABLES.values() if "paper" in t.scales], ids=lambda table: table.name)
def test_paper_scale_builds_and_its_twin_trains(table: PaperTable) -> None:
    """On the meta device; and two steps of the same recipe with everything but the structure made small."""
    torch.manual_seed(0)
    for row in table.rows[:: max(1, len(table.rows) // 3)]:
        recipe = table.spec(row, "paper")
        with torch.device("meta"):
            assert sum(p.numel() for p in build(recipe.architecture, recipe.model).parameters()) > 1e5
        model = build(recipe.architecture, twin(recipe.model)).train()
        assert isinstance(model, OdeumModel)
        example = model.example("cpu")
        optimizer = torch.optim.AdamW(model.parameters(), recipe.training.learning_rate)
        losses = []
        for _ in range(2):
            loss = model(**example, **labels(model, example)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert all(map(math.isfinite, losses)) and losses[0] != losses[1]


def twin(model: Any) -> Any:
    changes: dict[str, Any] = {"width": 16, "heads": 2, "hidden": 32}
    changes |= {"image_size": 16, "patch_size": 8} if isinstance(model, Vision) else {"length": 8, "vocabulary": 40}
    if isinstance(model, Language):
        changes["cutoffs"] = (10, 20)
    return replace(model, **changes)


def labels(model: OdeumModel, example: dict[str, Any]) -> dict[str, torch.Tensor]:
    settings = model.settings
    if isinstance(settings, Vision) or hasattr(settings, "classes"):
        return {"labels": torch.zeros(1, dtype=torch.long)}
    shape = (1, 8)
    return {} if "labels" in example else {"labels": torch.randint(1, 40, shape)}


# runs


def execution(table: PaperTable, store: Store, runs: Path, seeds: Seeds, rows: str | None = None) -> TableRuns:
    labels = [row.name for row in table.select(rows)]
    return TableRuns(table.study("laptop"), table.specs("laptop"), store, runs, seeds, labels, "odeum table x")


def test_missing_runs_are_trained_once_and_found_from_their_files_alone(tmp_path: Path) -> None:
    table, store = small_table(), Store(tmp_path / "results")
    job = execution(table, store, tmp_path / "runs", Seeds(2))
    assert list(job.missing())[:3] == [Wanted("first", 0), Wanted("second", 0), Wanted("third", 0)]
    assert job.train(Inline(), Nobody()) == []
    assert job.missing() == {}
    assert execution(table, store, tmp_path / "none", Seeds(2)).missing() == {}
    more = execution(table, store, tmp_path / "none", Seeds.parse("auto"))
    assert set(more.missing()) == {Wanted("first", 2), Wanted("second", 2), Wanted("third", 2)}
    kept = store.lines(table.spec(table.row("first"), "laptop"))[0]
    assert kept["facts"]["versions"]["torch"] and kept["facts"]["date"] and kept["steps"] == 2
    fresh = Store(tmp_path / "fresh")
    execution(table, fresh, tmp_path / "again", Seeds(1), "first").train(Inline(), Nobody())
    (told,) = compare_with_kept(table.study("laptop"), table.specs("laptop", table.select("first")), fresh, store)
    assert told.holds and told.sentence.endswith("the kept figure")


def test_a_failed_run_stops_no_other_row(tmp_path: Path) -> None:
    table, store = small_table(), Store(tmp_path / "results")
    blocked = tmp_path / "runs" / table.spec(table.row("first"), "laptop").key
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where the runs of a row belong")
    job = execution(table, store, tmp_path / "runs", Seeds.parse("auto"))
    messages = job.train(Inline(), Nobody())
    assert messages and all(message.startswith("first seed ") for message in messages)
    assert {wanted.label for wanted in job.missing()} == {"first"}


def test_a_row_of_a_claim_tries_rates_with_a_seed_of_its_own(tmp_path: Path) -> None:
    table, store = small_table(tune=3), Store(tmp_path / "results")
    job = execution(table, store, tmp_path / "runs", Seeds(1), "claims")
    first = job.missing()
    assert [spec.training.learning_rate for spec in first.values()] == [1e-3, 1e-3, 5e-4, 2e-3, 5e-4, 2e-3]
    assert {wanted.seed for wanted in first} == {TUNING_SEED}
    assert table.findings("laptop", store).claims[0].opinion == "not run"
    assert job.train(Inline(), Nobody()) == []
    assert job.missing() == {} == execution(table, store, tmp_path / "none", Seeds(1), "claims").missing()
    findings = table.findings("laptop", store)
    assert findings.study.tuning is not None
    for name in ("first", "second"):
        choice = findings.study.tuning.choice(name, True)
        (run,) = findings.results.of(name)
        assert choice is not None and run.seed == 0
        assert run.result["identity"]["training"].get("learning_rate", 1e-3) == choice.point[0]
        tried = at_rate(table.spec(table.row(name), "laptop"), choice.point)
        assert "test" not in store.lines(tried)[TUNING_SEED], "the choice must not know the test part"
        assert choice.value == store.lines(tried)[TUNING_SEED]["valid"]["accuracy"]
    assert "tuned so far: 2 of 2 rows" in paper_table(findings)
    planned = plan(store, [table])
    assert [(row.runs, row.tuned, row.seeds) for row in planned] == [
        (9, len(findings.study.tuning.values[row.row]), 1) for row in planned
    ]
    assert "in all" in plan_grid(planned).text()


def test_a_tuned_row_is_trained_again_at_its_own_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--fresh` does not tune: it repeats the kept figure at the rate that was chosen."""
    monkeypatch.setitem(TABLES, "test/table", small_table(tune=3))
    places = ["--results", str(tmp_path / "kept"), "--out", str(tmp_path / "runs"), "--jobs", "1", "--quiet"]
    words = ["table", "test/table", "--rows", "first", "--seeds", "1", *places]
    with pytest.raises(OdeumError, match="first of test/table has no tuned rate yet"):
        table_command([*words[1:], "--fresh"])
    assert main(words) == 0
    capsys.readouterr()
    assert main([*words, "--fresh"]) == 0
    assert capsys.readouterr().out.endswith(": the kept figure\n")
    monkeypatch.setenv("COLUMNS", "200")  # a narrow table is split when the measured time is long
    assert main(["table", "test/table", "--dry-run", *places[:2]]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("first"))
    assert line.split()[-1] == "1", "tuning runs are no seeds"


def test_a_figure_far_from_what_is_kept_is_told(tmp_path: Path) -> None:
    table, kept, fresh = small_table(), Store(tmp_path / "kept"), Store(tmp_path / "fresh")
    keep(kept, table, "first", [0.9, 0.91, 0.89])
    keep(fresh, table, "first", [0.5])
    study, specs = table.study("laptop"), table.specs("laptop", table.select("first"))
    (told,) = compare_with_kept(study, specs, fresh, kept)
    assert not told.holds and "spreads from the kept mean" in told.sentence
    assert compare_with_kept(study, specs, fresh, Store(tmp_path / "none"))[0].holds


def test_a_part_of_a_name_stands_for_its_rows() -> None:
    names = [row.name for row in table_named("zhong2022/table3").select("sequential,parallel")]
    assert names == ["sequential-0", "sequential-0.1", "parallel-0", "parallel-0.1"]
    assert [row.name for row in table_named("zhong2022/table1").select("sequential")] == ["sequential"]
    assert len(table_named("dutta2021/classification").select("transformer")) == 2
    assert {row.architecture for row in table_named("dutta2021/classification").select("sequential")} == {"sequential"}
    assert [row.name for row in table_named("zhong2022/figure2").select("parallel")] == ["separate"]
    assert {row.name for row in table_named("zhong2022/figure2").select("claims")} == {
        *("separate", "shared", "post-sum", "sequential")
    }


def test_mistakes_are_sentences() -> None:
    table = small_table()
    with pytest.raises(OdeumError, match="row of test/table"):
        table.select("fist")
    with pytest.raises(OdeumError, match="names no row"):
        table.select(" , ")
    with pytest.raises(OdeumError, match="table"):
        table_named("zhong2022/table9")
    with pytest.raises(OdeumError, match="row of test/table"):
        small_table(claims=(Claim("x", "first", "nobody"),))
    with pytest.raises(OdeumError, match="one pair"):
        small_table(claims=(Claim("x", "first", "second"), Claim("y", "first", "second")))


def test_the_page_of_results_is_what_the_kept_files_say() -> None:
    """docs/results.md and its picture are written by script/results; nothing in them is by hand."""
    for path, text in documents(Path(__file__).parents[3], kept_results()).items():
        assert (path.read_text(encoding="utf-8") if path.exists() else "") == text, "run script/results"
    with pytest.raises(OdeumError, match="no markers for the tables"):
        with_results("a page", "")


def test_answers_are_read_off_the_claims(tmp_path: Path) -> None:
    """Every question names claims that exist; what is not run is said to be so."""
    table, store = table_named("zhong2022/table1"), Store(tmp_path)
    tables = [each.findings("laptop", store) for each in TABLES.values()]
    assert all(line.count("not run yet") >= 1 for line in answers(tables))
    untuned = replace(table, tune=0)
    keep(store, untuned, "parallel", [0.30, 0.31, 0.305])
    keep(store, untuned, "sequential", [0.25, 0.262, 0.251])
    tables[0] = untuned.findings("laptop", store)
    assert "Images: yes, +" in answers(tables)[0] and "after 3 seeds; translation" in answers(tables)[0]


def test_the_plan_fits_its_budget() -> None:
    assert sum(row.planned for row in plan(kept_results())) <= BUDGET


def test_every_kept_run_stands_in_a_table() -> None:
    """A recipe that changes leaves its runs behind."""
    known = {table.spec(row, "laptop").key for table in TABLES.values() for row in table.rows}
    files = [path for path in kept_results().directory.glob("*.jsonl") if path.name != PACES]
    kept = {content["recipe"] for path in files for _, content in lines_of(path)}
    tuned = {
        at_rate(table.spec(row, "laptop"), (rate,)).key
        for table in TABLES.values()
        if table.tune
        for row in table.rows
        if row.name in table.claimed
        for rate in rates_around(table.spec(row, "laptop").training.learning_rate)
    }
    assert kept <= known | tuned


def test_a_picture_of_claims(tmp_path: Path) -> None:
    store, table = Store(tmp_path), small_table()
    keep(store, table, "first", [0.90, 0.91, 0.905])
    keep(store, table, "second", [0.80, 0.812, 0.801])
    result = table.findings("laptop", store)
    (mark,) = marks_of([result])
    assert mark.opinion == "agrees" and mark.paper == pytest.approx(10) and mark.low > 0
    assert claims_picture([result]).count("<circle") == 2
    near, alike = Store(tmp_path / "near"), [0.8001, 0.8121, 0.8012]
    keep(near, table, "first", alike)
    keep(near, table, "second", [0.80, 0.812, 0.801])
    equal = table.findings("laptop", near)
    assert marks_of([equal])[0].opinion == "practically equal" and "<circle" in claims_picture([equal])
    lower = small_table(metric="loss", margin=Margin(0.01, relative=True))
    assert marks_of([lower.findings("laptop", store)]) == []  # nothing of this metric is kept


def test_a_page_of_its_own(tmp_path: Path) -> None:
    store, table = Store(tmp_path / "kept"), small_table(title="A <table>")
    keep(store, table, "first", [0.90, 0.91, 0.905])
    keep(store, table, "second", [0.80, 0.812, 0.801])
    page = write_table(table.findings("laptop", store), tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "A &lt;table&gt;" in text and "<table>," not in text and "agrees" in text and "not run" in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")
    assert {path.name for path in page.parent.iterdir()} == {"report.html", "table.md", "table.csv", "plots"}
    assert write_table(table.findings("laptop", Store(tmp_path / "none")), tmp_path / "empty").exists()


def test_results_of_a_wheel_are_read_and_never_written(tmp_path: Path) -> None:
    shipped, table = tmp_path / "shipped", small_table()
    keep(Store(shipped), table, "first", [0.90, 0.91])
    before = {path: path.read_bytes() for path in shipped.glob("*.jsonl")}
    store = Store(tmp_path / "here", shipped)
    assert len(table.findings("laptop", store).rows[0].seeds) == 2
    keep(store, table, "first", [0.90, 0.91, 0.905])
    keep(store, table, "second", [0.80, 0.81])
    assert [len(row.seeds) for row in table.findings("laptop", store).rows][:2] == [3, 2]
    assert {path: path.read_bytes() for path in shipped.glob("*.jsonl")} == before


def test_the_kept_results_are_those_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the command is given, and a run names the commit of the library."""
    root = Path(__file__).resolve().parents[3]
    monkeypatch.chdir(tmp_path)
    assert kept_results() == Store(root / "results" / "tables")
    assert checkout() == root
    assert (git_revision() is not None) == (root / ".git").exists()
