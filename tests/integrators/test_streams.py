"""Several streams of states: hyper-connections and their kin start as the plain stack, and mix as their papers say."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from test_history import SHAPE, beside, perturbed, state
from torch import nn

from odeum import build
from odeum.architectures import stack
from odeum.fields import Context, Source
from odeum.flow import Stack
from odeum.integrators.streams import HyperConnections, ManifoldHyperConnections, Streams, sinkhorn
from odeum.lab.train.optimization import make_optimizer
from odeum.lab.train.settings import Training

pytestmark = pytest.mark.usefixtures("float64")


EXACT = dataclasses.replace(SHAPE, norm_eps=0.0)
STARTS = [
    ("hyper", "sequential"),
    ("hyper:dynamic=false,streams=3", "sequential"),
    ("hyper:streams=1", "sequential"),
    ("hyper:method=euler,norm=shared,steps=2", "parallel:norm=shared,steps=2"),
    ("hyper:form=macaron,independent=2,sharing=cycle", "macaron:independent=2,sharing=cycle"),
    ("attention-residuals", "sequential"),
    ("attention-residuals:block=3,independent=2", "sequential:independent=2"),
    ("attention-residuals:method=euler,block=99,steps=2", "parallel:steps=2"),
    ("mhc", "sequential"),
    ("mhc:mixing=permutations", "sequential"),
    ("mhc:streams=2,norm=peri", "sequential:norm=peri"),
    ("mhc:method=euler,steps=2", "parallel:steps=2"),
]


@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize(("spelling", "plain"), STARTS)
def test_streams_start_as_the_plain_stack(spelling: str, plain: str, cross: bool) -> None:
    one, other = beside(spelling, plain, EXACT, cross)
    for part in one.modules():
        if isinstance(part, ManifoldHyperConnections):
            nn.init.zeros_(part.map)  # the dynamic part
    x, context = state(), Context(other=Source(memory=torch.randn(2, 3, 8)))
    torch.testing.assert_close(one(x, context), other(x, context), rtol=0, atol=1e-12)
    if spelling.startswith("attention"):
        return  # whose last reading is a mean, not a sum
    for ours, theirs in zip(one.trajectory(x, context), other.trajectory(x, context), strict=True):  # ty: ignore
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


def test_any_doubly_stochastic_mix_starts_as_the_plain_stack() -> None:
    """And any equal reading, where norms do not see the scale."""
    one, other = beside("mhc:iterations=200", "sequential", EXACT)
    for part in one.modules():
        if isinstance(part, ManifoldHyperConnections):
            nn.init.zeros_(part.map)
            with torch.no_grad():
                part.bias[:4] = 0.0  # reads half of each: twice the state
                part.bias[8:].normal_()
    x = state()
    torch.testing.assert_close(one(x), other(x), rtol=0, atol=1e-11)


def test_a_whole_model_begins_with_the_coefficients_of_the_start() -> None:
    """No initialisation of the model runs over them."""
    model = build("hyper:streams=3", "vit_8")
    parts = [part for part in model.modules() if isinstance(part, HyperConnections)]
    for i, part in enumerate(parts):
        assert torch.equal(part.read, torch.eye(3)[i % 3]) and torch.equal(part.mix, torch.eye(3).flatten())
        assert torch.equal(part.write, torch.ones(3)) and not part.map.any()
    assert len(parts) == 4
    assert sum(p.numel() for p in parts[0].parameters()) == 3 * (3 + 2) + 64 * (3 + 3) + 2


def test_hyper_connections_by_hand() -> None:
    """One static step: read by c, mix by A, write by b; their mean goes on."""
    model, x = perturbed(stack("hyper:dynamic=false,streams=3,method=euler", SHAPE)), state()
    assert isinstance(model, Stack)
    z = [x, x, x]
    for flow in model.flows:
        part = flow.solver.method  # ty: ignore
        f = flow.field(0.0, sum(c * s for c, s in zip(part.read, z, strict=True)), Context())  # ty: ignore
        mix = part.mix.view(3, 3)
        z = [sum(mix[j, i] * z[i] for i in range(3)) + part.write[j] * f for j in range(3)]
    torch.testing.assert_close(model(x), model.norm(sum(z) / 3), rtol=0, atol=1e-12)  # ty: ignore


@pytest.mark.parametrize("iterations", [20, None], ids=["sinkhorn", "permutations"])
def test_mixing_matrices_of_mhc_are_doubly_stochastic_at_the_start(iterations: int | None) -> None:
    torch.set_default_dtype(torch.float32)
    part = ManifoldHyperConnections(64, 4, iterations)
    _, mix, _ = part.coefficients(torch.randn(5, 7, 4, 64))
    for axis in (-1, -2):
        torch.testing.assert_close(mix.sum(axis), torch.ones(5, 7, 4), rtol=0, atol=1e-6)
    assert mix.min() > 0 and torch.linalg.matrix_norm(mix, 2).max() <= 1 + 1e-6


@pytest.mark.parametrize(("spread", "most"), [(1.0, 1e-3), (8.0, 0.5)])
def test_how_far_sinkhorn_is_from_doubly_stochastic(spread: float, most: float) -> None:
    """Columns sum to one whatever the logits; rows nearly, and less so for large logits. More iterations help."""
    torch.manual_seed(0)
    logits = spread * torch.randn(1000, 4, 4)
    few, many = sinkhorn(logits, 20), sinkhorn(logits, 200)
    torch.testing.assert_close(few.sum(-2), torch.ones(1000, 4), rtol=0, atol=1e-12)
    errors = [(mix.sum(-1) - 1).abs().max().item() for mix in (few, many)]
    assert 0 < errors[0] < most and errors[1] < errors[0]
    assert sinkhorn(torch.full((4, 4), 1e4), 20).isfinite().all()


@pytest.mark.parametrize("spread", [1.0, 8.0, 1e3])
def test_means_of_permutations_are_doubly_stochastic_whatever_is_learned(spread: float) -> None:
    torch.set_default_dtype(torch.float32)
    part = ManifoldHyperConnections(16, 4, iterations=None)
    nn.init.normal_(part.bias, std=spread)
    nn.init.normal_(part.map, std=spread)
    _, mix, _ = part.coefficients(torch.randn(5, 7, 4, 16))
    for axis in (-1, -2):
        torch.testing.assert_close(mix.sum(axis), torch.ones(5, 7, 4), rtol=0, atol=1e-6)
    assert mix.min() >= 0


def test_permutations_start_where_sinkhorn_starts() -> None:
    """An exchange of two streams costs what a logit off the diagonal does, so the matrices are nearly equal."""
    found = []
    for iterations in (200, None):
        part = ManifoldHyperConnections(8, 4, iterations)
        nn.init.zeros_(part.map)
        found.append(part.coefficients(torch.randn(1, 1, 4, 8))[1])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=5e-3)


@pytest.mark.parametrize("spelling", ["hyper", "mhc", "mhc:mixing=permutations"])
def test_streams_are_mixed_in_single_precision_under_autocast(spelling: str) -> None:
    torch.set_default_dtype(torch.float32)
    model, seen = perturbed(stack(spelling, SHAPE)), []
    for part in model.modules():
        if isinstance(part, Streams):
            part.coefficients = lambda z, inner=part.coefficients: seen.append(inner(z)) or seen[-1]  # ty: ignore
    with torch.autocast("cpu", torch.bfloat16):
        out = model(torch.randn(2, 5, 8))
    assert out.isfinite().all() and {c.dtype for triple in seen for c in triple} == {torch.float32}


@pytest.mark.parametrize("spelling", ["hyper", "mhc", "dense", "attention-residuals", "yurii", "pcformer"])
def test_only_maps_decay(spelling: str) -> None:
    model = stack(spelling, SHAPE)
    decayed = {id(p) for p in make_optimizer(model, Training()).param_groups[0]["params"]}
    learned = {name.rpartition(".")[2]: id(p) in decayed for name, p in model.named_parameters() if ".solver." in name}
    assert learned.pop("map", True) and not any(learned.values())
