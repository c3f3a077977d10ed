"""Edits of the depth of a model: what they compute, what they cost, and how they are written as architectures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from odeum import OdeumError, build
from odeum.flow import Stack
from odeum.models import assemble
from odeum.surgery import KINDS, Edit, apply, cost_of, edits, settings_of

SIZES = {"width": 16, "heads": 2, "depth": 6, "hidden": 24, "vocabulary": 19, "length": 12}
EDITABLE = (
    "sequential",
    "post-norm",
    "rk4:independent=1",
    "macaron:independent=3",
    "strang",
    "implicit-midpoint",
    "ode-transformer",
    "sequential:gradient=checkpointed",
    "parallel:weights=knots,knots=2",
    "sequential:schedule=0-3/2-3",
)


def model_of(architecture: str, kind: str = "language_small", **sizes: int) -> Any:
    model = build(architecture, kind, **{**SIZES, **sizes}).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


def answer(model: Any, batch: dict[str, Tensor] | None = None) -> Tensor:
    ids = torch.randint(19, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(**(batch or {"input_ids": ids})).logits


def by_label(model: nn.Module, **restricted: Any) -> dict[str, Edit]:
    return {edit.label: edit for edit in edits(model, **restricted)[0]}


def by_hand(model: Any, order: list[int]) -> Tensor:
    """The model with its layers called in this order."""
    flows = list(model.stack.flows)

    def run(x: Tensor, context: Any = None) -> Tensor:
        for index in order:
            x = flows[index](x, context)
        return model.stack.norm(x)

    original, model.stack.forward = model.stack.forward, run
    try:
        return answer(model)
    finally:
        model.stack.forward = original


@pytest.mark.parametrize(
    ("label", "order"),
    [
        ("skip layer 2", [0, 1, 3, 4, 5]),
        ("skip layers 1–3", [0, 4, 5]),
        ("repeat layer 5", [0, 1, 2, 3, 4, 5, 5]),
        ("repeat layers 1–2", [0, 1, 2, 1, 2, 3, 4, 5]),
        ("layer 3 with the weights of 2", [0, 1, 2, 2, 4, 5]),
        ("layer 2 with the weights of 3", [0, 1, 3, 3, 4, 5]),
    ],
)
def test_layers_act_in_the_order_of_the_edit(label: str, order: list[int]) -> None:
    model = model_of("sequential")
    edited = apply(model, by_label(model)[label])
    torch.testing.assert_close(answer(edited), by_hand(model, order))
    cost = cost_of(edited)
    assert cost.evaluations == cost.depth == len(order)
    each = sum(p.numel() for p in model.stack.flows[0].parameters())
    assert cost.parameters == cost_of(model).parameters - (6 - len(set(order))) * each


def test_averages_and_parallel_layers() -> None:
    model = model_of("sequential")
    labels = by_label(model)
    mean = apply(model, labels["layers 1 and 2 with their mean weights"])
    a, b, both = (
        dict(part.named_parameters()) for part in (model.stack.flows[1], model.stack.flows[2], mean.stack.flows[1])
    )
    for name in a:
        torch.testing.assert_close(both[name], (a[name] + b[name]) / 2)
    assert mean.stack.schedule == (0, 1, 1, 2, 3, 4)

    beside = apply(model, labels["layers 1 and 2 in parallel"]).stack.flows[1]
    x = torch.randn(2, 5, 16)
    flows = model.stack.flows
    torch.testing.assert_close(beside(x), flows[1](x) + flows[2](x) - x)
    cost, own = cost_of(apply(model, labels["layers 1 and 2 in parallel"])), cost_of(model)
    assert (cost.evaluations, cost.parameters, cost.depth) == (own.evaluations, own.parameters, own.depth - 1)


def test_another_solver_acts_in_its_span_alone() -> None:
    model = model_of("parallel:independent=1", depth=6)
    finer = apply(model, by_label(model)["rk4, 1 step per layer"])
    assert cost_of(finer).evaluations == 24
    model = model_of("parallel")
    edited = apply(model, by_label(model)["rk4, 1 step per layer in layers 2–3"])
    assert cost_of(edited).evaluations == 4 + 2 * 4
    names = [type(flow.solver.method).__name__ for flow in edited.stack.flows]
    own = type(model.stack.flows[0].solver.method).__name__
    tableau = [flow.solver.method.tableau.name for flow in edited.stack.flows]
    assert names == [own] * 6 and tableau[2:4] == ["rk4", "rk4"] and set(tableau[:2] + tableau[4:]) == {"euler"}


@pytest.mark.parametrize("architecture", EDITABLE)
def test_an_edit_shares_weights_and_is_saved_as_it_was_measured(architecture: str) -> None:
    """Each edit leaves the model as it was; what `settings_of` builds with the edited weights computes the same."""
    model = model_of(architecture)
    before, known, saved = answer(model), {id(p) for p in model.parameters()}, 0
    for edit in edits(model)[0]:
        edited = apply(model, edit)
        if edit.kind != "average":
            assert all(id(p) in known for p in edited.parameters())
        try:
            new = assemble(*settings_of(model, edit)).eval()
        except OdeumError as error:
            assert "cannot be saved" in str(error) or "a method of its own" in str(error)
            continue
        new.load_state_dict(edited.state_dict())
        torch.testing.assert_close(answer(new), answer(edited), msg=edit.label)
        saved += 1
    assert saved and torch.equal(answer(model), before)


def test_both_stacks_of_a_translation_model() -> None:
    model = model_of("sequential", "translation_small", depth=3)
    ids = torch.randint(19, (2, 5))
    batch = {"input_ids": ids, "decoder_input_ids": ids.flip(1)}
    labels = by_label(model)
    for label in (
        "encoder: skip layer 1",
        "decoder: skip layer 2",
        "decoder: repeat layer 0",
        "encoder: repeat layer 1",
    ):
        edited = apply(model, labels[label])
        new = assemble(*settings_of(model, labels[label])).eval()
        new.load_state_dict(edited.state_dict())
        torch.testing.assert_close(answer(new, batch), answer(edited, batch))
        assert not torch.allclose(answer(edited, batch), answer(model, batch))


def test_one_shared_layer_has_numbers_of_layers() -> None:
    """Skipping any layer of a row with one set of weights is the same edit."""
    model = model_of("sequential:independent=1")
    labels = by_label(model, kinds=["skip", "repeat", "share", "average", "parallel"])
    assert {f"{n} instead of 6 layers" for n in (2, 3, 4, 5, 7, 8, 9, 10, 12)} <= set(labels)
    assert not any("weights of" in label for label in labels)
    count = by_label(model, kinds=["solver"])["4 steps over the interval of 6 layers"]
    architecture, settings = settings_of(model, count)
    assert settings.depth == 4 and architecture.interval == 1.5  # ty: ignore[missing-attribute]
    assert cost_of(apply(model, count)).evaluations == 4


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("transevolve", "consists of blocks"),
        ("adams-bashforth", "passes a state"),
        ("hyper", "passes a state"),
        ("momentum", "passes a state"),
        ("moda", "passes a state"),
        ("looped", "odeum evaluate RUN --repeats"),
    ],
)
def test_where_a_layer_is_nothing_alone(architecture: str, reason: str) -> None:
    with pytest.raises(OdeumError, match=reason) as caught:
        edits(model_of(architecture))
    assert architecture in str(caught.value)


def test_what_is_refused_with_a_reason() -> None:
    _, refused = edits(model_of("post-norm"))
    assert "ends in a norm" in refused["parallel"] and "norm" in refused["rk4"]
    _, refused = edits(model_of("parallel:weights=knots,knots=2"))
    assert set(refused) >= set(KINDS) - {"solver"}


def test_layers_out_of_range() -> None:
    model = model_of("sequential")
    with pytest.raises(OdeumError, match="layers 0 to 5"):
        edits(model, layers=(4, 6))
    inside = edits(model, ["skip", "repeat"], (2, 3))[0]
    assert {(edit.first, edit.last) for edit in inside} == {(2, 2), (3, 3), (2, 3)}


def test_an_edited_model_still_trains_and_decodes() -> None:
    model = model_of("sequential")
    edited = apply(model, by_label(model)["repeat layers 1–2"]).train()
    ids = torch.randint(19, (2, 7))
    edited(input_ids=ids, labels=ids).loss.backward()
    assert all(p.grad is not None for p in edited.stack.parameters())
    assert isinstance(edited.stack, Stack) and sum(1 for _ in edited.stack.trajectory(torch.randn(1, 3, 16))) == 9


def test_more_steps_of_a_shared_pre_norm_layer_have_a_limit() -> None:
    model = build("parallel:independent=1", "language_small", **SIZES).eval()
    labels = by_label(model, kinds=["solver"])
    once, twice = (answer(apply(model, labels[f"rk4, {n} per layer"])) for n in ("1 step", "2 steps"))
    assert (once - twice).norm() < 0.1 * (once - answer(model)).norm()
