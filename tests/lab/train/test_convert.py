"""Pretrained and trained weights under other architectures and solvers; and training that begins with them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
import transformers as T

from odeum import build, load
from odeum.fields.roles import by_role
from odeum.lab.cli import main
from odeum.lab.testing import perturbed
from odeum.lab.train.conversion import convert, deviation
from odeum.models.saved import load_model
from odeum.registry.spelling import parse

SIZES = {"width": 16, "heads": 2, "depth": 4, "hidden": 24, "vocabulary": 19, "length": 12}


def scrambled(architecture: str) -> torch.nn.Module:
    model = build(architecture, "language_small", **SIZES)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_macaron_and_back_is_the_same_model(activation: str) -> None:
    """The halves of a feed-forward are a macaron layer whose two steps add up to its one."""
    source = build("sequential", "language_small", **SIZES, activation=activation).eval()
    there = convert(source, parse("macaron"))
    assert not there.new and there.derived
    back = convert(there.model, parse("sequential"))
    for a, b in zip(source.state_dict().values(), back.model.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)
    assert deviation(source, back.model).logits < 1e-5


@pytest.mark.parametrize(
    ("architecture", "exact"), [("parallel", True), ("rk4", True), ("strang", True), ("parallel:norm=shared", False)]
)
def test_weights_go_by_role(architecture: str, exact: bool) -> None:
    source = scrambled("sequential")
    found = convert(source, parse(architecture))
    assert not found.new and bool(found.derived) != exact
    assert deviation(source, convert(source, parse("sequential")).model).logits == 0
    assert len(deviation(source, found.model).layers) == 4


def test_layers_that_become_one_get_their_mean_and_spread_again() -> None:
    source = scrambled("sequential")
    shared = convert(source, parse("sequential:independent=2"))
    assert not shared.new
    qkv = "flows.{}.field.fields.attention.field.qkv.weight"
    own, theirs = shared.model.stack.state_dict(), source.stack.state_dict()
    torch.testing.assert_close(own[qkv.format(1)], (theirs[qkv.format(2)] + theirs[qkv.format(3)]) / 2)
    first = convert(source, parse("sequential:independent=2"), "first").model.stack.state_dict()
    assert torch.equal(first[qkv.format(1)], theirs[qkv.format(2)])
    again = convert(shared.model, parse("sequential"))
    assert deviation(shared.model, again.model).logits < 1e-6


@pytest.mark.parametrize("between", ["constant", "linear", "cubic"])
def test_weights_over_time_get_those_of_their_layers(between: str) -> None:
    """A constant piece for each layer is the model itself; two knots are the first and the last one, or means."""
    source = scrambled("parallel")
    whole = convert(source, parse(f"parallel:weights=knots,knots=4,between={between}"))
    assert not whole.new and (between != "constant" or deviation(source, whole.model).logits < 1e-5)
    two = convert(source, parse(f"parallel:weights=knots,knots=2,between={between}"))
    own, theirs = by_role(two.model), by_role(source)
    name = "stack.layers.{}.attention.qkv.weight"
    rows = [theirs[name.format(layer)] for layer in range(4)]
    expected = [(rows[0] + rows[1]) / 2, (rows[2] + rows[3]) / 2] if between == "constant" else [rows[0], rows[3]]
    for knot, row in enumerate(expected):
        torch.testing.assert_close(own[f"stack.layers.0.attention.knots.{knot}.qkv.weight"], row)


@pytest.mark.parametrize("kind", ["hyper", "adaln"])
def test_one_field_over_time_gets_the_mean_of_all_layers(kind: str) -> None:
    source = scrambled("parallel")
    found, shared = (convert(source, parse(f"parallel:{rest}")) for rest in (f"weights={kind}", "independent=1"))
    own, theirs = by_role(found.model), by_role(shared.model)
    knot = "knots.0." if kind == "hyper" else ""
    for rest in ("attention.{}qkv.weight", "feedforward.{}norm.weight"):
        torch.testing.assert_close(
            own["stack.layers.0." + rest.format(knot)], theirs["stack.layers.0." + rest.format("")]
        )
    assert kind == "hyper" or deviation(shared.model, found.model).logits < 1e-5


@pytest.fixture(scope="module")
def albert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ALBERT with a vocabulary, imported."""
    folder = tmp_path_factory.mktemp("albert")
    sizes = {"hidden_size": 16, "num_hidden_layers": 6, "num_attention_heads": 2, "intermediate_size": 20}
    config = T.AlbertConfig(vocab_size=12, embedding_size=8, max_position_embeddings=16, **sizes)
    T.AlbertForMaskedLM(config).save_pretrained(folder / "theirs")
    (folder / "theirs" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\n")
    lines = [" ".join(letters) for letters in itertools.product("abcd", repeat=3)]
    (folder / "lines.txt").write_text("\n".join(lines))
    assert main(["import", str(folder / "theirs"), "--out", str(folder / "run")]) == 0
    return folder


@pytest.mark.slow
def test_import_surgery_convert_and_train(albert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = albert / "run"
    ((best, *_),) = load(run).predict(["a [MASK] c"], top=2)[0]
    assert best[0] in "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d" or best[0].startswith("<unused")
    out, fine = str(albert / "out"), str(albert / "fine")
    assert main(["surgery", str(run), str(albert / "lines.txt"), "--out", out, "--save", fine, "--row", "1"]) == 0
    shown = capsys.readouterr().out
    assert "has no small-step limit" in shown and "refused: rk4" in shown
    about = json.loads((albert / "out" / "surgery.json").read_text())
    evaluations = {row["edit"]: row["evaluations"] for row in about["screened"]}
    assert evaluations["4 steps over the interval of 6 layers"] == 4 and evaluations["12 instead of 6 layers"] == 12
    assert len(load_model(albert / "fine").stack.schedule) == about["rows"][1]["evaluations"]  # ty: ignore
    assert main(["convert", str(run), "--architecture", "post-norm:independent=2", "--out", str(albert / "two")]) == 0
    assert "relative change of logits: 0\n" in capsys.readouterr().out  # the same layer twice
    words = ["train", str(albert / "lines.txt"), "--from", str(albert / "two"), "--train.steps", "2"]
    assert main([*words, "--out", str(albert / "tuned")]) == 0
    tuned, start = load(albert / "tuned"), load_model(albert / "two")
    assert tuned.task.tokens.size == 12 and len(tuned.model.stack.flows) == 2
    far = (tuned.model.embedding.weight - start.embedding.weight).abs().max()
    assert 0 < far < 0.1  # it began there, and moved
    assert tuned.evaluate("test")["loss"] > 0


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("parallel:weights=knots,knots=2", "parallel:weights=knots,knots=3"),  # a line through its middle
        ("parallel:weights=knots,knots=2,between=constant", "parallel:weights=knots,knots=4,between=constant"),
        ("parallel:weights=knots,knots=2,between=constant", "parallel:independent=2"),
        ("sequential:weights=knots,knots=3,between=cubic", "sequential"),
        ("parallel:norm=shared,weights=knots,knots=3", "looped:norm=shared,method=euler,repeats=1"),
        ("sequential:weights=hyper,rank=2", "sequential"),
    ],
)
def test_weights_over_time_are_taken_as_they_are_at_their_time(before: str, after: str) -> None:
    """More knots, and a layer for each step, are the same model: no knot is taken by its name from another time."""
    source = perturbed(build(before, "language_small", **SIZES)).eval()
    found = convert(source, parse(after))
    ids = torch.randint(19, (2, 7))
    torch.testing.assert_close(found.model(ids).logits, source(ids).logits, rtol=0, atol=1e-11)
    assert not found.new


def test_what_a_network_of_the_time_adds_is_no_knot() -> None:
    source = perturbed(build("parallel:weights=hyper,rank=2", "language_small", **SIZES))
    found = convert(source, parse("parallel:weights=knots,knots=3"))
    first, other = source.stack.flows[0].field.fields["attention"], found.model.stack.flows[0].field  # ty: ignore
    for time, knot in zip((0.0, 2.0, 4.0), other.fields["attention"].knots, strict=True):
        torch.testing.assert_close(knot.field.qkv.weight, first.weights(time)["field.qkv.weight"])
