"""One registry of kinds: whatever is in it is whole, and a user's kind is one like ours."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import yaml
from registries import kept_registries

import odeum
from odeum import hf, register
from odeum.errors import OdeumError
from odeum.lab.cli import main
from odeum.lab.launch.local import cores
from odeum.lab.tasks import DATA_SETS, KINDS, Kind, Task, add_kind, load_task, open_task
from odeum.lab.tasks.generated import GeneratedTask
from odeum.lab.tasks.kind import kind_of_task, like
from odeum.lab.train.settings import Training
from odeum.models import OdeumModel
from odeum.models.description import describe
from odeum.models.settings import CLASSIFICATION, MODEL_KINDS, PRESETS, Model, ModelKind


@dataclasses.dataclass(frozen=True)
class ParityData:
    """Bits, and whether the number of ones is odd."""

    bits: int = 6
    """in a row"""


@dataclasses.dataclass(frozen=True)
class Mine(Model):
    """Settings of a user's model."""


SAME_NAME = dataclasses.make_dataclass("Vision", [], bases=(Mine,), frozen=True)


class ParityTask(GeneratedTask):
    """Is the number of ones odd?"""

    @classmethod
    def generate(cls, options: ParityData) -> dict[str, list[tuple[str, str]]]:
        draw = random.Random(0)
        rows = [[draw.choice("01") for _ in range(options.bits)] for _ in range(240)]
        made = [(" ".join(bits), "odd" if bits.count("1") % 2 else "even") for bits in rows]
        return {"train": made[:160], "valid": made[160:200], "test": made[200:]}


@pytest.fixture
def parity() -> Iterator[Kind]:
    """A user's kind, gone again afterwards."""
    with kept_registries():
        yield register.kind("parity", like="classification", options=ParityData, task=ParityTask, sets=("parity",))


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_kind_is_whole(kind: Kind) -> None:
    assert issubclass(kind.task_class, Task) and issubclass(kind.model_class, OdeumModel)
    assert kind_of_task(kind.task_class) is kind
    assert all(type(preset) is kind.settings for preset in kind.model.presets.values())
    assert all(DATA_SETS[name] == kind.name for name in kind.sets)
    assert kind.about and kind.options.__doc__
    small = kind.settings(width=16, heads=2, depth=1)
    model = odeum.build("sequential", small)
    assert isinstance(model, kind.model_class)
    assert model(**model.example("cpu", batch=2)).logits.shape[0] == 2
    assert describe("sequential", small, detail=False)["macs"] > 0


@pytest.mark.usefixtures("without_plots")
def test_a_users_kind_goes_through_every_verb(
    parity: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--data.bits", "5", "--model.depth", "1", "--model.width", "16", "--train.steps", "3"]
    words = ["compare", "parity", "--architectures", "sequential,parallel", "--seeds", "1", *small]
    assert main([*words, "--jobs", "2"]) == 2
    told = capsys.readouterr().err
    assert "the kind of data 'parity' is registered in this process alone" in told and "so there is no --jobs 2" in told
    assert main(words) == 0
    assert cores() == 1 or "so the runs go one after the other" in capsys.readouterr().err
    (folder,) = tmp_path.glob("runs/compare-parity-*/parallel/seed-0")  # its settings are in its name
    run = str(folder)
    assert json.loads((Path(run) / "task.json").read_text())["kind"] == "parity"
    assert type(load_task(run)) is ParityTask
    assert main(["evaluate", run]) == 0
    capsys.readouterr()
    assert main(["predict", run, "--text", "0 1 1 0 1", "--top", "1", "--format", "json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["output"]) in (["odd"], ["even"])
    assert main(["list"]) == 0
    assert "parity" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["train", "parity", "--help"])
    assert "--data.bits" in capsys.readouterr().out


class SlowParityTask(ParityTask):
    def training(self) -> Training:
        return dataclasses.replace(super().training(), learning_rate=3e-4)


class ShortParityTask(ParityTask):
    def training(self) -> Training:
        return dataclasses.replace(super().training(), epochs=2)


@pytest.mark.parametrize("verb", ["train", "compare"])
@pytest.mark.parametrize(("task", "rate"), [(ParityTask, None), (SlowParityTask, 3e-4), (ShortParityTask, None)])
def test_a_users_recipe_keeps_a_rate_of_its_own(
    task: type[Task], rate: float | None, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = KINDS["classification"].rates
    assert rule is not None
    with kept_registries():
        register.kind("parity", like="classification", options=ParityData, task=task, sets=("parity",))
        assert main([verb, "parity", "--model.width", "256", "--print_config"]) == 0
        text = capsys.readouterr().out
    assert yaml.safe_load(text)["train"]["learning_rate"] == (rate or rule.at(256))
    assert text.strip().endswith("recipe of parity" if rate else f"rule for parity: {rule}")


def test_a_run_whose_kind_is_not_there_says_so(parity: Kind, tmp_path: Path) -> None:
    open_task("parity").save(tmp_path)
    del KINDS.entries["parity"]
    with pytest.raises(OdeumError, match=r"is of the kind parity, which is not registered.*--plugin"):
        load_task(tmp_path)


def test_a_kind_that_is_not_registered_is_not_taken_for_one_like_it(tmp_path: Path) -> None:
    open_task("listops", count=20).save(tmp_path)
    record = json.loads((tmp_path / "task.json").read_text())
    del record["checksum"]
    (tmp_path / "task.json").write_text(json.dumps(record | {"kind": "somebodys"}))
    with pytest.raises(OdeumError, match="kind somebodys, which is not registered"):
        load_task(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sets": ("digits",)}, "data set 'digits' of the kind 'mine' is already registered for the kind 'images'"),
        ({"options": int}, "data options of the kind 'mine' must be a dataclass"),
        (
            {"model": ModelKind("mine", ParityData, OdeumModel)},  # ty: ignore[invalid-argument-type]
            "model settings of the kind 'mine' must be a dataclass that extends odeum.models.settings.Model",
        ),
        ({"setz": ()}, "unknown part of the kind 'mine' 'setz'; did you mean 'sets'"),
        (
            {"model": ModelKind("mine", Mine, OdeumModel, {"vit_8": Mine()})},
            "model 'vit_8' of the kind 'mine' is already registered for the kind 'vision'",
        ),
        (
            {"model": ModelKind("mine", SAME_NAME, OdeumModel)},
            "'Vision' of the kind 'mine' is already used by the kind 'vision'",
        ),
        (
            {"model": dataclasses.replace(CLASSIFICATION, settings=Mine)},
            "a kind of model 'classification' already exists, registered by odeum.models.settings",
        ),
        (
            {"options": dataclasses.make_dataclass("ImageData", [])},
            "'ImageData' of the kind 'mine' is already used by the kind 'images'",
        ),
    ],
)
def test_what_is_no_kind_is_refused_whole(changes: dict[str, Any], sentence: str) -> None:
    before = dict(KINDS), dict(MODEL_KINDS), dict(DATA_SETS), dict(PRESETS)
    with pytest.raises(OdeumError, match=sentence):
        add_kind(like(KINDS["classification"], "mine", **changes))
    assert before == (dict(KINDS), dict(MODEL_KINDS), DATA_SETS, PRESETS)


def test_kind_overrules_what_a_path_looks_like(
    tmp_path: Path, complaint: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "songs.csv").write_text("text,label\n" + "la la la,song\nblah blah,talk\n" * 60)
    assert open_task("songs.csv").kind == "classification"
    assert main(["train", "songs.csv", "--kind", "language", "--train.steps", "1", "--model.depth", "1"]) == 0
    assert json.loads(next(tmp_path.glob("runs/**/run.json")).read_text())["kind"] == "language"
    capsys.readouterr()
    assert main(["train", "songs.csv", "--kind", "langage"]) == 2 and "did you mean 'language'" in complaint()
    assert (
        main(["train", "digits", "--kind", "language"]) == 2 and "'digits' is a set of the kind images" in complaint()
    )
    assert main(["train", "songs.csv", "--kind", "listops"]) == 2 and "is generated, not read from" in complaint()


def test_the_kind_is_part_of_the_configuration(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "songs.csv").write_text("text,label\n" + "la la la,song\nblah blah,talk\n" * 60)
    assert main(["train", "songs.csv", "--kind", "language", "--print_config"]) == 0
    (tmp_path / "config.yaml").write_text(capsys.readouterr().out)
    assert main(["train", "--config", "config.yaml", "--print_config"]) == 0
    again = yaml.safe_load(capsys.readouterr().out)
    assert again == yaml.safe_load((tmp_path / "config.yaml").read_text()) and again["kind"] == "language"


def test_labels_count_as_the_loss_counts_them() -> None:
    assert OdeumModel.counted(torch.tensor([[1, -100], [2, 3]])) == 3
    assert OdeumModel.counted(torch.rand(4, 10)) == 4  # probabilities of ten classes


WHOLE_KIND = """
from dataclasses import dataclass

import odeum
from odeum.lab.tasks import KINDS, Kind
from odeum.lab.tasks.generated import GeneratedTask
from odeum.models import ClassificationModel
from odeum.models.settings import Classification, ModelKind


@dataclass(frozen=True)
class LongestData:
    \"\"\"Rows of letters; the class is the letter of the longest run.\"\"\"

    rows: int = 60
    \"\"\"number of rows\"\"\"


@dataclass(frozen=True)
class Scaled(Classification):
    \"\"\"A classifier with scaled logits.\"\"\"

    scale: float = 2.0
    \"\"\"factor of the logits\"\"\"


class ScaledModel(ClassificationModel):
    def apply_head(self, x, context):
        return self.settings.scale * super().apply_head(x, context)


class LongestTask(GeneratedTask):
    @classmethod
    def generate(cls, options):
        rows = [("a b b", "b"), ("a a b", "a")] * (options.rows // 2)
        return {"train": rows, "valid": rows[:8], "test": rows[:8]}

    def model(self):
        return Scaled(width=16, heads=2, depth=1, **self.facts())


odeum.register.kind(
    Kind(
        name="longest",
        about="the longest run of letters",
        input="text",
        target="class",
        options=LongestData,
        model=ModelKind("scaled", Scaled, ScaledModel, presets={"scaled_small": Scaled(width=16, heads=2, depth=1)}),
        task=LongestTask,
        decided=("classes", "vocabulary", "length"),
        sets=("longest",),
    )
)
"""


def test_a_whole_kind_of_a_plugin_with_a_model_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("longest_runs.py").write_text(WHOLE_KIND)
    plugin = ["--plugin", "longest_runs.py"]
    with kept_registries():
        words = ["train", "longest", "--model.scale", "3", "--train.steps", "2", "--out", "run"]
        assert main([*words, *plugin]) == 0
        record = json.loads(Path("run/config.json").read_text())
        assert record["kind"] == "Scaled" and record["model"]["scale"] == 3.0
        [need] = record["plugins"]
        assert (need["what"], need["name"], need["file"]) == ("kind of model", "scaled", "longest_runs.py")
        assert main(["evaluate", "run", *plugin]) == 0
        assert odeum.build("rk4", "scaled_small", scale=4.0).settings.scale == 4.0
        model = hf.from_run("run")
        assert type(model) is hf.OdeumForSequenceClassification
        model.save_pretrained("saved")
        again = transformers.AutoModelForSequenceClassification.from_pretrained("saved")
        assert again.odeum.settings.scale == 3.0 and type(again.odeum).__name__ == "ScaledModel"
    sys.modules.pop("longest_runs")
    capsys.readouterr()
    with pytest.raises(OdeumError, match=r"needs the kind of model 'scaled' of plugin longest_runs\.py; add --plugin"):
        odeum.load("run")
