"""Weights that depend on time: what they are in the limits, and that they are one field wherever it is evaluated."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import prune

from odeum import Encoder, build, set_solver, set_steps
from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Cache, Context, Source
from odeum.fields.bases import HyperNetwork, Knots, Legendre
from odeum.fields.hypernetwork import AdaptiveNorm, TimedField
from odeum.flow import Stack
from odeum.integrators import RK4, Adaptive, FixedSteps, RungeKutta
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=4, hidden=16)
LEGENDRE = "weights=legendre,degree=2"
KINDS = ("weights=knots,knots=3", "weights=knots,between=cubic", "weights=hyper,rank=2", "weights=adaln", LEGENDRE)
PIECES = "weights=knots,knots=2,between=constant"


def state() -> Tensor:
    return torch.randn(2, 5, SHAPE.width)


def pieces(model: nn.Module) -> list[TimedField]:
    return [part for part in model.modules() if isinstance(part, TimedField)]


def perturbed(model: nn.Module) -> nn.Module:
    """adaLN and Legendre's polynomials start without time; here they have some."""
    for part in model.modules():
        if isinstance(part, AdaptiveNorm):
            nn.init.normal_(part.adapt.weight, std=0.1)
        if isinstance(part, TimedField) and isinstance(part.basis, Legendre):
            for weight in part.knots[1:].parameters():
                nn.init.normal_(weight, std=0.1)
    return model


def as_knots(plain: Stack, model: nn.Module) -> None:
    """The layers' weights at the knots, layer k at knot k."""
    for k, flow in enumerate(plain.flows):
        for term, timed in zip(flow.field.terms, pieces(model), strict=True):  # ty: ignore
            timed.knots[k].load_state_dict(term.state_dict())
    model.norm.load_state_dict(plain.norm.state_dict())  # ty: ignore


# ------------------------------------------------------------------------------------------------- what they are


@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize(
    "name", ["parallel", "sequential", "rk4", "strang", "macaron", "rk4:norm=shared", "adams-bashforth"]
)
def test_a_constant_knot_for_each_layer_are_unshared_layers(name: str, cross: bool) -> None:
    """To the bit, although a stage of rk4 lies on the edge of its step; two of each layer's steps are in one piece."""
    comma = "," if ":" in name else ":"
    plain, model = (
        stack(name, SHAPE, cross),
        stack(f"{name}{comma}weights=knots,knots=4,between=constant", SHAPE, cross),
    )
    as_knots(plain, model)  # ty: ignore
    x, context = state(), Context(other=Source(memory=torch.randn(2, 3, 8)))
    assert torch.equal(model(x, context), plain(x, context))
    for both in (plain, model):
        set_steps(both, 3)
    torch.testing.assert_close(model(x, context), plain(x, context), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["knots=1", "knots=1,between=constant", "knots=1,between=cubic"])
def test_one_knot_is_the_shared_layer(kind: str) -> None:
    plain, model, x = stack("rk4:independent=1", SHAPE), stack(f"rk4:weights=knots,{kind}", SHAPE), state()
    as_knots(plain, model)  # ty: ignore
    assert torch.equal(model(x), plain(x))


@pytest.mark.parametrize("degree", [0, 3])
def test_legendre_weights_start_as_the_shared_layer(degree: int) -> None:
    plain, model, x = stack("rk4:independent=1", SHAPE), stack(f"rk4:weights=legendre,degree={degree}", SHAPE), state()
    as_knots(plain, model)  # ty: ignore
    assert torch.equal(model(x), plain(x))


@pytest.mark.parametrize("between", ["constant", "linear", "cubic"])
def test_equal_knots_are_the_shared_layer(between: str) -> None:
    model, plain, x = (
        stack(f"rk4:weights=knots,knots=4,between={between}", SHAPE),
        stack("rk4:independent=1", SHAPE),
        state(),
    )
    flow = plain.flows[0]  # ty: ignore
    for term, timed in zip(flow.field.terms, pieces(model), strict=True):
        for knot in timed.knots:
            knot.load_state_dict(term.state_dict())
    torch.testing.assert_close(model(x), plain(x), rtol=0, atol=1e-12)


def test_a_network_without_time_features_is_the_shared_field(monkeypatch: pytest.MonkeyPatch) -> None:
    model, plain, x = stack("rk4:weights=hyper", SHAPE), stack("rk4:independent=1", SHAPE), state()
    as_knots(plain, model)  # ty: ignore
    assert not torch.allclose(model(x), plain(x))
    monkeypatch.setattr(HyperNetwork, "features", lambda self, t: torch.zeros(self.inner.in_features))
    torch.testing.assert_close(model(x), plain(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", ["pre", "shared"])
def test_adaln_starts_as_the_shared_field(norm: str) -> None:
    model, plain, x = (
        stack(f"rk4:weights=adaln,norm={norm}", SHAPE),
        stack(f"rk4:independent=1,norm={norm}", SHAPE),
        state(),
    )
    model.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(model(x), plain(x), rtol=0, atol=1e-12)
    assert not torch.allclose(perturbed(model)(x), plain(x))


@pytest.mark.parametrize("between", ["linear", "cubic"])
@pytest.mark.parametrize("count", [2, 3, 6])
def test_knots_are_met_and_a_line_stays_a_line(between: str, count: int) -> None:
    basis = Knots(count, between, 0.0, 5.0)
    line = torch.linspace(1.0, 3.0, count)
    for t in torch.linspace(0, 5, 31).tolist():
        assert sum(number * line[k] for k, number in basis.numbers(t).items()).item() == pytest.approx(1 + 0.4 * t)
    for k in range(count):
        assert basis.numbers(5.0 * k / (count - 1)) == pytest.approx({k: 1.0})


def test_cubics_have_no_corners() -> None:
    basis, values = Knots(5, "cubic", 0.0, 4.0), torch.randn(5).tolist()

    def theta(t: float) -> float:
        return sum(number * values[k] for k, number in basis.numbers(t).items())

    for knot in (1.0, 2.0, 3.0):
        h = 1e-6
        assert (theta(knot) - theta(knot - h)) / h == pytest.approx((theta(knot + h) - theta(knot)) / h, abs=1e-4)


@pytest.mark.parametrize("kind", ["weights=knots,knots=2", "weights=hyper,rank=2", PIECES])
def test_smooth_weights_leave_a_method_its_order(kind: str) -> None:
    """Distances between refinements shrink by 2⁴; constant pieces too, since no step crosses a jump."""
    model, x, found = stack(f"rk4:{kind}", dataclasses.replace(SHAPE, depth=2)), state(), []
    for steps in (8, 16, 32):
        set_steps(model, steps)
        with torch.no_grad():
            found.append(model(x))
    ratio = (found[1] - found[0]).norm() / (found[2] - found[1]).norm()
    assert 12 < ratio.item() < 20


def test_a_trained_model_has_another_number_of_layers() -> None:
    """Half as many, twice as many, three for two; a layer of length one keeps whole steps."""
    model, x, count = build("parallel:weights=knots,knots=3", "vit_8", depth=4), torch.randn(2, 1, 8, 8), []
    model.stack.flows[0].field.fields["attention"].register_forward_hook(lambda *_: count.append(1))  # ty: ignore
    for steps, layers in ((0.5, 2), (2, 8), (1.5, 6), (1, 4)):
        set_steps(model, steps)
        count.clear()
        model(x)
        assert len(count) == layers
    with pytest.raises(OdeumError, match=r"0\.3 steps per layer make 1\.2 steps in an interval of 4"):
        set_steps(model, 0.3)
    with pytest.raises(OdeumError, match=r"positive integer, got 0\.5"):
        set_steps(stack("parallel", SHAPE), 0.5)
    set_solver(model, FixedSteps(RungeKutta(RK4), 2))
    assert model(x).logits.isfinite().all()


@pytest.mark.parametrize("kind", [*KINDS, PIECES])
def test_in_a_mixed_stack_weights_over_time_begin_with_their_part(kind: str) -> None:
    kind = kind.replace("knots=3", "knots=2").replace("degree=2", "degree=1")
    small = dataclasses.replace(SHAPE, depth=2)
    mixed, first, last = stack(f"parallel*2+rk4:{kind}*2", SHAPE), stack("parallel", small), stack(f"rk4:{kind}", small)
    first.load_state_dict({k: v for k, v in mixed.state_dict().items() if "flows.2" not in k})
    last.load_state_dict(
        {
            k.replace("flows.2", "flows.0"): v
            for k, v in perturbed(mixed).state_dict().items()
            if "flows.2" in k or "flows" not in k
        }
    )
    x = state()
    *_, middle = first.trajectory(x)  # ty: ignore
    torch.testing.assert_close(mixed(x), last(middle), rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------ the same everywhere

ALL = [*(f"rk4:{kind}" for kind in (*KINDS, PIECES)), f"sequential:{KINDS[0]}", f"momentum:{KINDS[2]}"]


@pytest.mark.parametrize("spelling", ALL)
def test_one_gradient_recomputed_handed_in_and_with_a_graph(spelling: str) -> None:
    shape = dataclasses.replace(SHAPE, dropout=0.3, stochastic_depth=0.2)
    model = perturbed(stack(spelling, shape))
    recomputed = perturbed(stack(f"{spelling},gradient=checkpointed", shape))
    weights = {name.replace("solver.", "solver.solver.", 1): p for name, p in model.named_parameters()}
    recomputed.load_state_dict(weights)
    x, found = state(), []
    for own, create in ((model, False), (model, True), (recomputed, False)):
        torch.manual_seed(1)
        with sdpa_kernel(SDPBackend.MATH):  # which is twice differentiable
            loss = own(x).pow(3).sum()
            found.append(torch.autograd.grad(loss, list(own.parameters()), create_graph=create))
    for own in (model, recomputed):
        given = {name: p.detach().clone().requires_grad_() for name, p in own.named_parameters()}
        with torch.no_grad():
            for p in own.parameters():
                p.mul_(0.5)
        torch.manual_seed(1)
        out = functional_call(own, given, (x,)).pow(3).sum()
        found.append(torch.autograd.grad(out, list(given.values())))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", [*KINDS, PIECES])
def test_the_adjoint_is_backpropagation_in_the_limit(kind: str) -> None:
    x, found = state(), []
    shape = dataclasses.replace(SHAPE, depth=3)
    start = perturbed(stack(f"rk4:{kind},steps=8", shape)).state_dict()
    for gradient in ("backprop", "adjoint"):
        model = stack(f"rk4:{kind},steps=8,gradient={gradient}", shape)
        model.load_state_dict(start)
        found.append(torch.autograd.grad(model(x).pow(3).sum(), list(model.parameters())))
    for a, b in zip(*found, strict=True):
        assert (a - b).norm() < 1e-3 * a.norm() + 1e-6


@pytest.mark.parametrize("spelling", ALL)
def test_decoding_with_a_cache_is_recomputing(spelling: str) -> None:
    model = perturbed(build(spelling, "language_small", vocabulary=17, width=8, heads=2, depth=4, hidden=16).eval())
    ids, cache = torch.randint(0, 17, (3, 7)), Cache()
    whole = model(ids).logits
    for start, end in ((0, 4), (4, 5), (5, 7)):
        found = model(ids[:, start:end], cache=cache).logits
        torch.testing.assert_close(found, whole[:, start:end], rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "spelling",
    [
        pytest.param(f"parallel:{KINDS[0]},gradient=checkpointed", marks=pytest.mark.slow),
        pytest.param(f"rk4:{KINDS[2]},gradient=checkpointed", marks=pytest.mark.slow),
        f"parallel:{KINDS[2]}",
        pytest.param(f"parallel:{KINDS[3]}", marks=pytest.mark.slow),
        pytest.param(f"rk4:{PIECES}", marks=pytest.mark.slow),
    ],
)
def test_it_compiles_into_one_graph(spelling: str) -> None:
    torch.compiler.reset()
    model, x = perturbed(Encoder(16, 2, 2, spelling.replace("knots=3", "knots=2"), hidden=32)), torch.randn(3, 6, 16)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for a, b in zip(
        *(torch.autograd.grad(m(x).pow(3).sum(), list(model.parameters())) for m in (model, compiled)), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    torch.compiler.reset()


@pytest.mark.parametrize("spelling", ALL)
def test_autocast_and_low_precision(spelling: str) -> None:
    torch.set_default_dtype(torch.float32)
    model, x = perturbed(stack(spelling, SHAPE)), torch.randn(2, 5, 8)
    right = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model(x).float(), right, rtol=0.1, atol=0.1)
    assert model.bfloat16()(x.bfloat16()).isfinite().all()


# ------------------------------------------------------------------------------ what others do to the modules of knots

INTERPOLATED = [
    *("parallel:weights=knots,knots=3", f"parallel:{LEGENDRE}", "sequential:weights=knots,knots=3,between=cubic"),
    "rk4:weights=hyper",
]


def linears(model: nn.Module) -> list[Any]:
    """The linear maps of all knots."""
    return [part for timed in pieces(model) for part in timed.knots.modules() if type(part).__name__.endswith("Linear")]


@pytest.mark.parametrize("spelling", INTERPOLATED)
def test_pruned_knots_are_the_model_with_pruned_weights(spelling: str) -> None:
    """As hooks make them before each call, after `prune.remove`, and with one knot alone pruned."""
    model, x = perturbed(stack(spelling, SHAPE)), state()
    for choose in (linears, lambda model: linears(model)[-1:]):
        pruned, expected = copy.deepcopy(model), copy.deepcopy(model)
        for part, other in zip(choose(pruned), choose(expected), strict=True):
            prune.l1_unstructured(part, "weight", amount=0.3)
            other.weight.data.mul_(part.weight_mask)
        right = expected(x)
        assert not torch.allclose(right, model(x))
        torch.testing.assert_close(pruned(x), right)
        for part in choose(pruned):
            prune.remove(part, "weight")
        torch.testing.assert_close(pruned(x), right)


@pytest.mark.parametrize("spelling", INTERPOLATED)
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
def test_normed_weights_are_those_that_their_modules_compute_with(spelling: str, norm: Callable[..., Any]) -> None:
    model, x = perturbed(stack(spelling, SHAPE)), state()
    expected = model(x)
    for part in linears(model):
        norm(part)
    found = model(x)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "knots.0" in name)


@pytest.mark.parametrize("spelling", INTERPOLATED)
def test_quantized_knots_are_refused(spelling: str) -> None:
    model = stack(spelling, SHAPE).float()
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    with pytest.raises(OdeumError, match=r"field.qkv.weight is hidden in a torch.ao.nn.quantized.*odeum convert"):
        quantized(torch.randn(2, 5, 8, dtype=torch.float32))


def test_quantized_norms_in_time_stay_close() -> None:
    model = perturbed(stack("sequential:weights=adaln", SHAPE).float())
    quantized = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear})
    x = torch.randn(2, 5, 8, dtype=torch.float32)
    expected = model(x)
    assert ((quantized(x) - expected).norm() / expected.norm()).item() < 0.1


def test_knots_of_different_kinds_and_foreign_tensors_are_refused() -> None:
    model, x = stack(INTERPOLATED[0], SHAPE), state()
    part = linears(model)[-1]
    weight = part._parameters.pop("weight")
    part.other = weight
    with pytest.raises(OdeumError, match=r"field.down.other is in knots.0 or knots.2 alone; change all of them"):
        model(x)

    class Packed(torch.Tensor):
        """As torchao's quantized weights, a tensor of another kind."""

    model = stack(INTERPOLATED[0], SHAPE)
    first = linears(model)[0]
    first.weight = nn.Parameter(first.weight.data.as_subclass(Packed), requires_grad=False)
    with pytest.raises(OdeumError, match=r"field.qkv.weight is a Packed, so weights that depend on time"):
        model(x)


def test_hooks_of_the_nearest_knot_are_called_once_an_evaluation() -> None:
    model, x, seen = stack("parallel:weights=knots,knots=3", SHAPE), state(), []
    timed = pieces(model)[0]
    for number, knot in enumerate(timed.knots):
        up = knot.field.qkv
        up.register_forward_pre_hook(lambda module, _, up=up, n=number: seen.append((n, module is up)))
        up.register_forward_hook(lambda module, _, out: 0.0 * out)
    set_steps(model, 2)
    model(x)
    assert [n for n, _ in seen] == [0, 0, 0, 1, 1, 1, 1, 2] and all(same for _, same in seen)
    silent = stack("parallel:weights=knots,knots=3", SHAPE)
    silent.load_state_dict(model.state_dict())
    set_steps(silent, 2)
    assert not torch.allclose(silent(x), model(x)), "what a hook returns counts"


@pytest.mark.parametrize("spelling", INTERPOLATED)
def test_threads_see_the_stored_weights_and_not_each_other(spelling: str) -> None:
    """Nothing is written into a module: weights that are read during a forward pass are those that are stored."""
    model = perturbed(stack(spelling, SHAPE))
    inputs = [state() for _ in range(3)]
    stored = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        expected, found = [model(x) for x in inputs], {}

        def work(i: int) -> None:
            with torch.no_grad():
                found[i] = [model(inputs[i]) for _ in range(8)]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        reads = 0
        while any(thread.is_alive() for thread in threads):
            assert all(torch.equal(value, stored[name]) for name, value in model.state_dict().items())
            reads += 1
        for thread in threads:
            thread.join()
    assert reads and all(torch.equal(out, expected[i]) for i in range(3) for out in found[i])


@pytest.mark.parametrize(
    ("spelling", "sentence"),
    [
        ("parallel:weights=knots,knots=5", "knots=5 exceeds the 4 layers"),
        ("parallel:knots=3", "knots=3 applies to weights=knots only, but weights=constant is set"),
        ("continuous:weights=knots,rank=3", "rank=3 applies to weights=hyper only, but weights=knots is set"),
        ("parallel:weights=knots,degree=2", "degree=2 applies to weights=legendre only, but weights=knots is set"),
        ("parallel:weights=legendre,degree=4", "degree=4 has 5 coefficients, more than the 4 layers"),
        ("parallel:weights=hyper,between=cubic", "between=cubic applies to weights=knots only"),
        ("parallel:weights=knots,between=steps", "unknown between of parallel 'steps'"),
        ("parallel:weights=sine", "unknown weights of parallel 'sine'"),
        ("parallel:weights=knots,independent=2", "which independent=2 contradicts"),
        ("parallel:weights=hyper,schedule=0-1/0-1", "which schedule=0-1/0-1 contradicts"),
        ("post-norm:weights=hyper", "a norm after the step (norm=post) has no time"),
        ("parallel:weights=adaln,norm=peri", "norm=pre or shared, not peri"),
        ("hyper:weights=knots", "cannot be combined with hyper: it is one field for any number of layers"),
        ("dense:weights=knots", "cannot be combined with dense: it is one field for any number of layers"),
        ("continuous:weights=knots,between=constant", "weights that are continuous in time"),
    ],
)
def test_what_does_not_go_together_is_a_sentence(spelling: str, sentence: str) -> None:
    with pytest.raises(OdeumError) as caught:
        stack(spelling, SHAPE)
    assert sentence in str(caught.value)


def test_an_adaptive_solver_refuses_jumps_later_too() -> None:
    with pytest.raises(OdeumError, match="are continuous in time"):
        set_solver(stack(f"rk4:{PIECES}", SHAPE), Adaptive())
