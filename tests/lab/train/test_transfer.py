"""Learning rates carry over to other widths and depths: the rules of CompleteP's Table 1, and what they promise."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scripts import load_script

from odeum.errors import OdeumError
from odeum.kernels.adamw import EPSILON
from odeum.lab.cli import main
from odeum.lab.tasks import open_task
from odeum.lab.train.coordinate_check import _random_batch, check_transfer
from odeum.lab.train.job import Job, initial_model
from odeum.lab.train.optimization import make_optimizer
from odeum.lab.train.settings import Training
from odeum.lab.train.transfer import scale_initial_weights, scales, transferred
from odeum.models import build
from odeum.models.settings import Classification, Language, MaskedLanguage, Translation, Vision, find_preset
from odeum.registry.names import ARCHITECTURES
from odeum.registry.spelling import parse

COMPLETEP = Training(parametrization="completep", base_width=16, base_depth=2)
TEXT: dict[str, Any] = {"vocabulary": 23, "length": 9}
WIDE: dict[str, Any] = {"width": 64, "heads": 4, "depth": 6}  # m_N = 4, m_L = 3
VISION = Vision(image_size=8, patch_size=4, channels=1, classes=3, **WIDE)
WITHOUT_RULE = (
    *("sandwich", "ode-transformer", "pcformer", "continuous", "transevolve"),
    *("yurii", "dense", "attention-residuals", "residual-scalars", "lagged-attention", "two-lanes"),
    *("value-residual", "moda", "mudd", "ngpt", "keel"),
)
WITH_RULE = [
    name
    for name, entry in ARCHITECTURES.entries.items()
    if entry.module.startswith("odeum.") and name not in WITHOUT_RULE
]


def groups(settings: Any, training: Training = COMPLETEP) -> dict[str, dict[str, float]]:
    """What the optimizer does with each weight."""
    model = build(*transferred(parse("sequential"), settings, training))
    names = {id(weight): name for name, weight in model.named_parameters()}
    return {
        names[id(weight)]: {key: value for key, value in group.items() if key != "params"}
        for group in make_optimizer(model, training).param_groups
        for weight in group["params"]
    }


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_table_1(alpha: float) -> None:
    """Layer weights η/m_N m_L^(α−1) and λ m_N, vectors η m_L^(α−1); ε/m_N, in the layers times m_L^−α."""
    training = replace(COMPLETEP, depth_exponent=alpha)
    rules = groups(VISION, training)
    layers = {name: rule for name, rule in rules.items() if name.startswith("stack.flows")}
    rate, epsilon = 3 ** (alpha - 1), EPSILON / 4 / 3**alpha
    for name, rule in layers.items():
        assert rule["eps"] == pytest.approx(epsilon)
        matrix = name.endswith("weight") and ".norm." not in name
        assert rule["scale"] == pytest.approx(rate / 4 if matrix else rate), name
        assert rule["weight_decay"] == pytest.approx(training.weight_decay * 4 if matrix else 0.0)
    for name in ("patch.weight", "position", "stack.norm.weight", "head.bias"):
        assert rules[name]["scale"] == 1.0
        assert rules[name]["eps"] == pytest.approx(EPSILON if name == "head.bias" else EPSILON / 4)
    assert rules["patch.weight"]["weight_decay"] == training.weight_decay
    assert rules["position"]["weight_decay"] == 0.0
    # The logits times 1 / m_N, folded into the matrix.
    assert rules["head.weight"]["scale"] == pytest.approx(1 / 4)
    assert rules["head.weight"]["weight_decay"] == pytest.approx(4 * training.weight_decay)
    assert rules["head.weight"]["eps"] == pytest.approx(EPSILON)  # ε / m_N of the paper's matrix, over the factor


@pytest.mark.parametrize("kind", [Language, Classification, MaskedLanguage, Translation])
def test_epsilon_is_relative_to_the_gradients_of_each_weight(kind: type) -> None:
    """Under the rule no gradient, over its ε, depends on the width (where ε alone decides, Adam is its gradient)."""
    ratios: dict[str, list[float]] = {}
    for width in (16, 256):
        torch.manual_seed(0)
        settings = kind(
            **TEXT, width=width, heads=width // 16, depth=2, **({"classes": 3} if kind is Classification else {})
        )
        model: Any = build("sequential", settings)
        scale_initial_weights(model, COMPLETEP)
        batch = _random_batch(model)
        model(**batch).loss.backward()
        factors = scales(model, COMPLETEP)
        for name, weight in model.named_parameters():
            if weight.grad is not None and float(weight.grad.abs().max()) > 0:
                size = float(weight.grad.double().square().mean().sqrt())
                ratios.setdefault(name, []).append(size / factors[name].epsilon)
    assert ratios
    for name, (small, large) in ratios.items():
        assert 0.2 < large / small < 5, (name, large / small)


def test_layers_are_as_long_as_the_depth_asks_for() -> None:
    for alpha, length in ((1.0, 1 / 3), (0.5, 3**-0.5)):
        training = replace(COMPLETEP, depth_exponent=alpha)
        for spelling, before in (("sequential", 1.0), ("rk4:interval=0.5", 0.5)):
            architecture: Any = transferred(parse(spelling), VISION, training)[0]
            assert architecture.interval == pytest.approx(before * length)
    both = Translation(**TEXT, **WIDE, decoder="macaron")
    encoder, settings = transferred(parse("parallel"), both, COMPLETEP)
    decoder: Any = parse(settings.decoder)
    assert (encoder.interval, decoder.interval, decoder.form) == (  # ty: ignore[unresolved-attribute]
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
        "macaron",
    )


@pytest.mark.parametrize(
    "settings",
    [
        replace(VISION, width=16, heads=1, depth=2),
        Language(**TEXT, width=16, heads=1, depth=2),
        Classification(**TEXT, classes=3, width=16, heads=1, depth=2),
        MaskedLanguage(**TEXT, width=16, heads=1, depth=2),
        Translation(**TEXT, width=16, heads=1, depth=2),
    ],
    ids=lambda settings: type(settings).__name__,
)
def test_at_the_base_size_nothing_changes(settings: Any) -> None:
    assert transferred(parse("rk4"), settings, COMPLETEP) == (parse("rk4"), settings)
    model = build("rk4", settings)
    assert set(scales(model, COMPLETEP).values()) == {(1.0, 1.0, 1.0, 1.0)}
    before = [weight.clone() for weight in model.parameters()]
    scale_initial_weights(model, COMPLETEP)
    assert all(map(torch.equal, before, model.parameters()))


def test_standard_recipes_stay_as_they_are() -> None:
    training = Training()
    assert training.parametrization == "standard"
    assert transferred(parse("transevolve"), VISION, training) == (parse("transevolve"), VISION)
    model = build("sequential", VISION)
    first, second = make_optimizer(model, training).param_groups
    assert {*first} == {*second} == {"lr", "params", "weight_decay"}


def test_initial_logits_and_inputs_have_the_size_that_the_rule_says() -> None:
    """Logits shrink as m_N^−½ at the start, and what enters the layers does not depend on the width."""
    torch.manual_seed(0)
    ids = torch.randint(23, (64, 9))
    images = torch.randn(256, 1, 8, 8)
    inputs: dict[str, list[float]] = {"images": [], "text": []}
    logits: dict[str, list[float]] = {"images": [], "text": []}
    for width in (16, 256):
        sizes = {"width": width, "heads": width // 16, "depth": 2}
        vision, text = replace(VISION, **sizes, classes=16), Language(vocabulary=500, length=9, **sizes)
        for name, settings, given in (("images", vision, images), ("text", text, ids)):
            model: Any = build("sequential", settings)
            scale_initial_weights(model, COMPLETEP)
            with torch.no_grad():
                before = model.embed(given) if name == "images" else model.embedding(given)
                inputs[name].append(float(before[:, 1:].std()))
                logits[name].append(float(model(given).logits.std()))
    for name in inputs:
        assert inputs[name][1] == pytest.approx(inputs[name][0], rel=0.1)
        assert logits[name][1] / logits[name][0] == pytest.approx(16**-0.5, rel=0.35)


@pytest.mark.parametrize("architecture", WITHOUT_RULE)
def test_architectures_without_an_interval_have_no_rule(architecture: str) -> None:
    with pytest.raises(OdeumError, match=r"^no transfer rule: .*; use --train.parametrization standard$"):
        transferred(parse(architecture), VISION, COMPLETEP)


@pytest.mark.parametrize(
    ("settings", "architecture"),
    [
        (Translation(**TEXT, **WIDE, decoder_depth=2), "sequential"),
        (Translation(**TEXT, **WIDE, decoder="transevolve"), "sequential"),
        (VISION, "sequential:weights=knots"),
        (VISION, "parallel*3+rk4*3"),
    ],
)
def test_other_settings_without_a_rule(settings: Any, architecture: str) -> None:
    with pytest.raises(OdeumError, match="no transfer rule"):
        transferred(parse(architecture), settings, COMPLETEP)


@pytest.mark.parametrize("exponent", [0.0, 1.5])
def test_exponents_are_depth_mups_to_completeps(exponent: float) -> None:
    with pytest.raises(OdeumError, match=r"depth_exponent of the training must be from 0\.5 to 1"):
        Training(depth_exponent=exponent)


def test_a_run_is_trained_by_the_rule_and_loaded_as_any(tmp_path: Path) -> None:
    """The interval is written into config.json, so what is loaded is the model that was trained."""
    import odeum

    words = ["train", "digits", "--architecture", "parallel", "--train.parametrization", "completep"]
    words += ["--train.base_depth", "1", "--train.base_width", "16", "--model.depth", "2", "--model.width", "32"]
    words += ["--model.heads", "2", "--train.steps", "3", "--out", str(tmp_path / "run"), "--seed", "3"]
    assert main(words) in (0, None)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["architecture"] == "parallel:interval=0.5"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["training"]["parametrization"] == "completep"
    model = odeum.load(tmp_path / "run").model
    assert model.architecture == parse("parallel:interval=0.5")
    task = open_task("digits")
    training = replace(COMPLETEP, base_depth=1)
    settings = task.fit(replace(task.model(), width=32, heads=2, depth=2))
    job = Job.on(task, settings, parse("parallel"), training, 3, tmp_path / "other")
    assert initial_model(job).architecture == model.architecture


def test_describe_prints_the_slopes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_transfer, "__kwdefaults__", {"widths": (16, 32), "depths": (2, 4)})
    assert main(["describe", "parallel", "--transfer", "--format", "json"]) in (0, None)
    found = json.loads(capsys.readouterr().out)
    assert {"activation over width", "update over width", "activation over depth", "update over depth"} == set(
        found["completep"]["slopes"]
    )
    assert [size["depth"] for size in found["standard"]["depths"]] == [2, 4]
    assert main(["describe", "sandwich", "--transfer"]) in (0, None)
    out = capsys.readouterr().out
    assert "slope over log depth" in out
    assert "no transfer rule: sandwich has no interval" in out


def depth_slope(architecture: str, parametrization: Any, depths: tuple[int, ...]) -> float:
    check = check_transfer(
        parse(architecture), find_preset("language_small"), parametrization, widths=(32,), depths=depths
    )
    return check.slopes["update over depth"]


def test_updates_do_not_depend_on_depth_or_width_with_the_rule() -> None:
    settings = find_preset("language_small")
    check = check_transfer(parse("sequential"), settings, "completep", widths=(32, 128), depths=(8, 32))
    assert abs(check.slopes["update over depth"]) < 0.1
    assert abs(check.slopes["update over width"]) < 0.1
    plain = check_transfer(parse("sequential"), settings, "standard", widths=(32, 128), depths=(8, 32))
    assert plain.slopes["update over depth"] > 0.3
    assert plain.slopes["update over width"] > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("architecture", WITH_RULE)
def test_updates_do_not_depend_on_depth_where_there_is_a_rule(architecture: str) -> None:
    assert abs(depth_slope(architecture, "completep", (8, 16, 32, 64))) < 0.1


def test_the_page_says_what_was_measured() -> None:
    root, benchmark = Path(__file__).parents[3], load_script("benchmarks/transfer.py")
    found = json.loads((root / "benchmarks" / "results" / "transfer.json").read_text(encoding="utf-8"))
    page = (root / "docs" / "family.md").read_text(encoding="utf-8")
    assert all(table in page for table in benchmark.show(found).split("\n\n"))
    for updates in found["kinds"]["updates"].values():  # classifiers converge with depth
        assert abs(math.log2(updates[-1] / updates[-2])) < 0.1 < abs(math.log2(updates[1] / updates[0]))
    slopes = {name: slope for name, slope in found["slopes"].items() if "no rule" not in slope}
    assert slopes.keys() == {"sequential, standard", *WITH_RULE}
    assert all(abs(slopes[name]["update over depth"]) < 0.1 for name in WITH_RULE)
