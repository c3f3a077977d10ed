"""Solvers of a field: samples as if alone, implicit steps, layers of another length, and the energy of a pass."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from odeum import build, set_solver, set_steps
from odeum.architectures import stack
from odeum.errors import Diverged, OdeumError
from odeum.fields import Context, Field, Source
from odeum.flow import Flow
from odeum.integrators import (
    BOSH3,
    EULER,
    AdaptivePerSample,
    Adjoint,
    FixedSteps,
    ImplicitMidpoint,
    RungeKutta,
)
from odeum.integrators.energy import kinetic_energy
from odeum.integrators.implicit import fixed_point_residual
from odeum.lab.train.settings import Training
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=4, hidden=16)


def unlike() -> Tensor:
    """Samples that need steps of different length."""
    return torch.randn(3, 5, 8) * torch.tensor([0.2, 1.0, 6.0]).view(3, 1, 1)


class Rate(Field):
    """dx/dt = rate x."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(rate))

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.rate * x


class Clock(Field):
    """dx/dt = 2 t: the times that each sample is told."""

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return 2.0 * t + torch.zeros_like(x)


# --------------------------------------------------------------------------------------------- each sample alone


@pytest.mark.parametrize("method", ["dopri5", "bosh3"])
def test_each_sample_is_as_if_alone(method: str) -> None:
    model = stack(f"continuous:adapt=sample,method={method}", SHAPE)
    shared = stack(f"continuous:method={method}", SHAPE)
    shared.load_state_dict(model.state_dict())
    x = unlike()
    out = model(x)
    for i in range(3):
        torch.testing.assert_close(out[i : i + 1], shared(x[i : i + 1]), rtol=0, atol=1e-11)
        torch.testing.assert_close(out[i : i + 1], model(x[i : i + 1]), rtol=0, atol=1e-11)
    assert (out - shared(x)).abs().max() > 1e-6, "one step for all is another solution, within the tolerance"


def test_padding_does_not_count() -> None:
    sizes = {"vocabulary": 17, "classes": 3, "width": 8, "heads": 2, "depth": 3}
    model = build("continuous:adapt=sample", "classification_small", **sizes).eval()
    ids = torch.randint(1, 17, (2, 9))
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, 4:] = 0
    both = model(ids, attention_mask=mask).logits
    alone = model(ids[:1, :4], attention_mask=mask[:1, :4]).logits
    torch.testing.assert_close(both[:1], alone, rtol=0, atol=1e-10)


def test_gradients_of_samples_are_those_alone() -> None:
    model = stack("continuous:adapt=sample,method=bosh3,rtol=0.01", SHAPE)
    again = stack("continuous:adapt=sample,method=bosh3,rtol=0.01,gradient=checkpointed", SHAPE)
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        b.data.copy_(a.data)
    x = unlike()
    whole = torch.autograd.grad(model(x).pow(3).sum(), list(model.parameters()))
    parts = [torch.autograd.grad(model(x[i : i + 1]).pow(3).sum(), list(model.parameters())) for i in range(3)]
    recomputed = torch.autograd.grad(again(x).pow(3).sum(), list(again.parameters()))
    for a, b, *each in zip(whole, recomputed, *parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(a, sum(each), rtol=1e-9, atol=1e-9)


def test_fields_are_told_the_times_of_each_sample() -> None:
    flow = Flow(Clock(), AdaptivePerSample(BOSH3, 1e-9, 1e-9), 0.0, 3.0)
    x = torch.randn(4, 2, 3) * torch.tensor([1e-3, 1.0, 10.0, 1e3]).view(4, 1, 1)
    torch.testing.assert_close(flow(x), x + 9.0, rtol=1e-9, atol=1e-9)


def test_what_has_one_time_for_all_is_refused() -> None:
    for spelling in ("continuous:adapt=sample,weights=hyper", "continuous:adapt=sample,weights=adaln"):
        with pytest.raises(OdeumError, match="weights that do not depend on time"):
            stack(spelling, SHAPE)
    with pytest.raises(OdeumError, match="weights that do not depend on time"):
        set_solver(stack("transevolve:method=euler", SHAPE), AdaptivePerSample())
    with pytest.raises(OdeumError, match="it needs one step size for all samples"):
        Adjoint(AdaptivePerSample()).check(Rate(1.0))


@pytest.mark.parametrize("adapt", ["batch", "sample"])
def test_a_stiff_field_ends_in_a_sentence(adapt: str) -> None:
    model = stack(f"continuous:adapt={adapt},evaluations=60", SHAPE)
    flow = model.flows[0]  # ty: ignore
    stiff = Flow(Rate(-1e6), flow.solver, 0.0, 4.0)
    with pytest.raises(Diverged, match=r"the field is stiff for rtol=0\.001"):
        stiff(torch.randn(2, 3, 4))


# ----------------------------------------------------------------------------------------------- implicit steps


def test_the_implicit_midpoint_is_found_and_does_not_grow() -> None:
    """(1 + z/2) / (1 − z/2) of the step z, here 1/3: Euler would be at 0, and beyond z = −2 grow."""
    method = ImplicitMidpoint(60)
    flow, x = Flow(Rate(-1.0), FixedSteps(method)), torch.randn(2, 3, 4)
    torch.testing.assert_close(flow(x), x / 3, rtol=1e-12, atol=1e-12)
    assert method.residual is not None and method.residual < 1e-12


def test_the_residual_is_told() -> None:
    few, many = (stack(f"implicit-midpoint:iterations={n},interval=0.1", SHAPE) for n in (1, 12))
    many.load_state_dict(few.state_dict())
    assert fixed_point_residual(few) is None
    x = torch.randn(2, 5, 8)
    for model in (few, many):
        model(x)
    assert fixed_point_residual(many) < fixed_point_residual(few) / 100  # ty: ignore
    wild = Flow(Rate(-5.0), FixedSteps(ImplicitMidpoint(3)))
    wild(x)
    assert wild.solver.method.residual > 0.5, "not found, and said"  # ty: ignore


def test_one_iteration_is_the_explicit_midpoint() -> None:
    one, other, x = stack("implicit-midpoint:iterations=1", SHAPE), stack("midpoint", SHAPE), unlike()
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(one(x), other(x), rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------------- layers of another length


def test_a_layer_of_half_the_length_moves_half_as_far() -> None:
    model, plain, x = stack("parallel:interval=0.5", SHAPE), stack("parallel", SHAPE), unlike()
    plain.load_state_dict(model.state_dict())
    y = x
    for flow in plain.flows:  # ty: ignore
        y = y + 0.5 * flow.field(0.0, y, Context())
    torch.testing.assert_close(model(x), plain.norm(y), rtol=0, atol=1e-12)  # ty: ignore
    assert [t for _, t in model.timed()] == [0.0, 0.5, 1.0, 1.5]  # ty: ignore


@pytest.mark.parametrize("interval", [0.3, 0.5, 2])
def test_steps_are_counted_by_layers_of_any_length(interval: float) -> None:
    model, x = stack(f"parallel:interval={interval}", SHAPE), unlike()
    built = stack(f"parallel:interval={interval},steps=3", SHAPE)
    built.load_state_dict(model.state_dict())
    before = model(x)
    set_steps(model, 3)
    assert torch.equal(model(x), built(x)) and not torch.allclose(model(x), before)
    set_steps(model, 1)
    assert torch.equal(model(x), before)


@pytest.mark.parametrize("name", ["sequential", "rk4", "post-norm", "parallel:norm=shared", "adams-bashforth"])
def test_a_learned_pace_starts_as_the_interval_and_learns(name: str) -> None:
    comma = "," if ":" in name else ":"
    model, plain, x = stack(f"{name}{comma}pace=learned", SHAPE), stack(name, SHAPE), unlike()
    model.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(model(x), plain(x), rtol=0, atol=1e-12)
    model(x).pow(3).sum().backward()
    paces = [p for n, p in model.named_parameters() if n.endswith("pace")]
    assert len(paces) == SHAPE.depth * (1 if "shared" in name else 2)
    assert all(p.grad is not None and p.grad.abs() > 0 for p in paces)


# ------------------------------------------------------------------------------------------------ kinetic energy


def test_the_energy_of_a_straight_way_is_its_length_squared() -> None:
    """At constant speed v over time 2: ∫ v² = 2 v²; a way that turns takes more."""

    class Drift(Field):
        def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
            return torch.full_like(x, 3.0)

    flow = Flow(Drift(), FixedSteps(RungeKutta(EULER), 4), 0.0, 2.0)
    with kinetic_energy(flow) as energy:
        flow(torch.randn(2, 3, 4))
    assert energy.total.item() == pytest.approx(18.0)
    assert flow.solver.moved is None


@pytest.mark.parametrize("spelling", ["sequential", "rk4:steps=2", "continuous:adapt=sample"])
def test_padding_has_no_energy(spelling: str) -> None:
    model, x = stack(spelling, SHAPE), unlike()
    longer = torch.cat((x, 9.0 * torch.randn_like(x)), dim=1)
    seen = torch.ones(longer.shape[:2], dtype=torch.bool)
    seen[:, x.shape[1] :] = False
    found = []
    for state, context in ((x, Context()), (longer, Context(own=Source(mask=seen[:, None, None, :])))):
        with kinetic_energy(model) as energy, torch.no_grad():
            model(state, context)
        found.append(energy.total.item())
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize(
    "spelling",
    ["sequential", "rk4:gradient=checkpointed", "continuous", "continuous:adapt=sample", "momentum"],
)
def test_the_energy_has_a_gradient(spelling: str) -> None:
    model, x = stack(spelling, SHAPE), unlike()
    with kinetic_energy(model) as energy:
        model(x)
    energy.total.backward()
    inside = [p for n, p in model.named_parameters() if ".field." in n and "qkv" not in n]
    assert energy.total > 0 and all(p.grad is not None for p in inside)


def test_less_energy_is_learned() -> None:
    """A step against the gradient of the energy makes the ways shorter."""
    model, x = stack("parallel", dataclasses.replace(SHAPE, depth=2)), unlike()
    found = []
    for _ in range(2):
        with kinetic_energy(model) as energy:
            model(x)
        found.append(energy.total)
        weights = [p for p in model.parameters() if p.requires_grad]
        grads = torch.autograd.grad(energy.total, weights, allow_unused=True)
        with torch.no_grad():
            for p, g in zip(weights, grads, strict=True):
                if g is not None:
                    p.sub_(1e-3 * g)
    assert found[1] < found[0]


def test_where_states_are_not_kept_energy_is_refused() -> None:
    for spelling, kind in (("reversible", "reversible"), ("rk4:gradient=adjoint", "adjoint")):
        with pytest.raises(OdeumError, match=f"cannot be combined with gradient={kind}: it is measured between states"):
            kinetic_energy(stack(spelling, SHAPE)).__enter__()
    with pytest.raises(OdeumError, match="use one of them"):
        Training(kinetic=0.1, compile=True)
    with pytest.raises(OdeumError, match="kinetic of the training must be a non-negative number"):
        Training(kinetic=-1.0)
    assert Context(own=Source()).step is None
