"""Layers that are run backwards: the way back meets every state again, and the gradient is backpropagation's."""

from __future__ import annotations

import dataclasses
import random
import weakref
from typing import Any

import pytest
import torch
from covering import meeting
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from odeum import build
from odeum.architectures import stack
from odeum.errors import Diverged, OdeumError
from odeum.fields import Cache, Context, Field, SelfAttention, Source
from odeum.fields.base import Carry
from odeum.flow import Flow, Stack
from odeum.integrators import FixedSteps, Leapfrog, Reversible, ReversibleHeun
from odeum.models.description import activation_memory, describe
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=4, hidden=16)
SCHEMES = {
    "revnet": "reversible",
    "momentum": "reversible:scheme=momentum",
    "heun": "reversible:scheme=heun",
    "leapfrog": "leapfrog:gradient=reversible",
    "coupling": "reversible:scheme=coupling",
    "coupled rk4": "reversible:scheme=coupling,method=rk4",
}
MORE = {
    "shared": "reversible:independent=2,sharing=cycle",
    "shared heun": "reversible:scheme=heun,independent=1,steps=2",
    "strang": "momentum:method=strang,steps=2,gradient=reversible",
    "euler": "momentum:method=euler,gradient=reversible",
    "in time": "reversible:scheme=heun,weights=knots",
    "in pieces": "reversible:scheme=heun,weights=knots,between=constant,knots=2,steps=2",
    "hyper": "reversible:weights=hyper,rank=2",
    "leap shared": "leapfrog:independent=1,steps=3,gradient=reversible",
}
ALL = [*SCHEMES.values(), *MORE.values()]


def state(batch: int = 2) -> Tensor:
    return torch.randn(batch, 5, SHAPE.width)


def backprop(spelling: str) -> str:
    """The same architecture, with states that are kept."""
    if "gradient=reversible" in spelling:
        return spelling.replace("gradient=reversible", "gradient=backprop")
    return f"{spelling}{',' if ':' in spelling else ':'}gradient=backprop"


def beside(spelling: str, shape: Shape = SHAPE, cross: bool = False) -> tuple[nn.Module, nn.Module]:
    one, other = stack(spelling, shape, cross), stack(backprop(spelling), shape, cross)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        b.data.copy_(a.data)
    return one, other


def drift(model: nn.Module) -> float:
    return max(part.drift for part in model.modules() if isinstance(part, Reversible) and part.drift is not None)


def close(one: list[Tensor], other: list[Tensor], tolerance: float = 1e-9) -> None:
    for a, b in zip(one, other, strict=True):
        assert (a - b).abs().max() <= tolerance * max(1.0, b.abs().max().item())


# ------------------------------------------------------------------------------------------------- the theorems


@pytest.mark.parametrize("spelling", SCHEMES.values(), ids=SCHEMES)
def test_48_layers_are_run_back_and_the_gradient_is_backpropagation(spelling: str) -> None:
    one, other = beside(spelling, dataclasses.replace(SHAPE, depth=48))
    x = state().requires_grad_()
    found = [torch.autograd.grad(m(x).pow(2).sum(), [x, *m.parameters()]) for m in (one, other)]
    assert drift(one) < 1e-10
    close(*found)  # ty: ignore


@pytest.mark.parametrize("spelling", ALL)
def test_back_undoes_a_step(spelling: str) -> None:
    model = stack(spelling, SHAPE)
    assert isinstance(model, Stack)
    context, x = Context(carry=Carry()), state()
    method = model.flows[0].stateful_method  # ty: ignore
    x = method.begin(x, context)
    way = []
    with torch.no_grad():
        for flow, t in model.timed():
            for step in flow.solver.solver.divided(t, t + flow.duration):
                way.append((flow.field, step, x))
                x = method.step(flow.field, *step, x, context._replace(step=step))
        for field, step, before in reversed(way[1:]):
            x = method.step_back(field, *step, x, context._replace(step=step))
            torch.testing.assert_close(x, before, rtol=0, atol=1e-11)


@pytest.mark.parametrize("scheme", ["revnet", "heun"])
def test_memory_does_not_grow_with_depth(scheme: str) -> None:
    """What one example keeps for the backward pass, at four times the depth; and a quarter of backpropagation's."""

    def kept(spelling: str, depth: int) -> int:  # so small a model is faster than its shapes on the meta device
        return activation_memory(build(spelling, "vit_8", depth=depth, width=16, heads=2))  # ty: ignore

    deep = kept(SCHEMES[scheme], 48)
    assert deep < 1.3 * kept(SCHEMES[scheme], 12)
    assert deep < kept(backprop(SCHEMES[scheme]), 48) / 4


class Storages(TorchDispatchMode):
    """How many bytes the tensors made inside hold at once, at most; those that are there before are not counted."""

    def __init__(self, *before: Tensor) -> None:
        super().__init__()
        self.known = {tensor.untyped_storage()._cdata for tensor in before}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(out):
            if isinstance(tensor, Tensor) and (own := tensor.untyped_storage())._cdata not in self.known:
                self.known.add(own._cdata)
                self.now += own.nbytes()
                weakref.finalize(own, self.gone, own._cdata, own.nbytes())
        self.peak = max(self.peak, self.now)
        return out

    def gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


def test_the_peak_of_a_training_step_grows_by_the_gradients_of_the_weights_alone() -> None:
    """All that is made in a step, forwards and back: states are as many at depth 48 as at 12, a quarter of others'."""

    def peak(spelling: str, depth: int) -> int:
        model, x = stack(spelling, dataclasses.replace(SHAPE, depth=depth)), torch.randn(4, 16, SHAPE.width)
        with Storages(x, *model.parameters()) as made:
            model(x).pow(2).sum().backward()
        return made.peak - sum(weight.nbytes for weight in model.parameters())  # whose gradients come all at once

    deep = peak("reversible", 48)
    assert 0 < deep < 1.05 * peak("reversible", 12)
    assert deep < peak("sequential", 48) / 4


@pytest.mark.parametrize(
    ("options", "evaluations"), [("independent=1", 5), ("steps=3,independent=1", 13), ("", 8), ("weights=hyper", 5)]
)
def test_reversible_heun_evaluates_once_a_step_where_the_field_stays(options: str, evaluations: int) -> None:
    count: list[int] = []
    model = stack(f"reversible:scheme=heun,{options}", SHAPE)
    for part in model.modules():
        if isinstance(part, SelfAttention):
            part.register_forward_hook(lambda *_: count.append(1))
    with torch.no_grad():
        model(state())
    assert len(count) == evaluations


def test_the_coupling_with_all_kept_over_one_term_is_revnet_with_tied_halves() -> None:
    """y′ = y + f(z), z′ = z + f(y′)."""
    flow = stack("reversible:scheme=coupling,keep=1,method=euler,independent=1", SHAPE).flows[0]  # ty: ignore
    x = state()
    y = z = x
    for t in range(3):
        y = y + flow.field(float(t), z, Context())
        z = z + flow.field(float(t), y, Context())
    torch.testing.assert_close(Stack([flow], [0] * 3)(x), y, rtol=0, atol=1e-12)


def test_revnet_by_hand() -> None:
    model, x = stack("reversible", SHAPE, cross=True), state()
    context = Context(other=Source(memory=torch.randn(2, 3, 8)))
    p = q = x
    for flow in model.flows:  # ty: ignore
        attention, cross, feed = flow.field.terms
        q = q + attention(0.0, p, context) + cross(0.0, p, context)
        p = p + feed(0.0, q, context)
    torch.testing.assert_close(model(x, context), model.norm((p + q) / 2), rtol=0, atol=1e-12)  # ty: ignore


# ----------------------------------------------------------------------------------------------- everywhere


@pytest.mark.parametrize(("spelling", "cross"), meeting(ALL, [False, True]))
def test_one_gradient(spelling: str, cross: bool) -> None:
    """Of the state, the weights, an encoder's memory and a learned mask; also with weights handed in."""
    one, other = beside(spelling, cross=cross)
    x, memory, mask = (y.requires_grad_() for y in (state(), torch.randn(2, 3, 8), torch.randn(5, 5)))
    context = Context(own=Source(mask=mask, causal=True), other=Source(memory=memory if cross else None))
    inputs = [x, mask, *([memory] if cross else [])]
    found = [torch.autograd.grad(m(x, context).pow(3).sum(), [*inputs, *m.parameters()]) for m in (one, other)]
    close(*found)  # ty: ignore
    given = {name: (2 * p.detach() / 2).requires_grad_() for name, p in one.named_parameters()}
    history = {name: 1.0 * w for name, w in given.items()}
    with torch.no_grad():
        for p in one.parameters():
            p.mul_(0.5)
    out = functional_call(one, history, (x, context)).pow(3).sum()
    close(list(torch.autograd.grad(out, [*inputs, *given.values()])), list(found[1]))


@pytest.mark.parametrize("spelling", ALL)
def test_dropout_is_the_same_on_the_way_back(spelling: str) -> None:
    """The derivative along a random direction is that of the function with these very masks."""
    shape = dataclasses.replace(SHAPE, dropout=0.3, stochastic_depth=0.2)
    model = stack(spelling, shape)
    x, along = state().requires_grad_(), torch.randn(2, 5, 8)

    def value(z: Tensor) -> Tensor:
        torch.manual_seed(5)
        random.seed(1)
        return model(z).pow(3).sum()

    (gradient,) = torch.autograd.grad(value(x), x)
    h = 1e-5
    numeric = (value(x + h * along) - value(x - h * along)) / (2 * h)
    assert (gradient * along).sum().item() == pytest.approx(numeric.item(), rel=1e-6)
    torch.manual_seed(6)
    assert not torch.equal(model(x), value(x))


@pytest.mark.parametrize("spelling", [SCHEMES["revnet"], SCHEMES["leapfrog"], MORE["shared heun"], MORE["hyper"]])
def test_second_derivatives_and_batches_of_gradients(spelling: str) -> None:
    one, other = beside(spelling, dataclasses.replace(SHAPE, depth=2))
    x, found, several = state().requires_grad_(), [], []
    with sdpa_kernel(SDPBackend.MATH):
        for m in (one, other):
            first = torch.autograd.grad(m(x).pow(3).sum(), [x, *m.parameters()], create_graph=True)
            found.append([*first, *torch.autograd.grad(sum(g.pow(2).sum() for g in first), [x, *m.parameters()])])
            out = m(x)
            rows = torch.eye(4).repeat(1, 20).view(4, *out.shape)
            several.append(torch.autograd.grad(out, x, rows, is_grads_batched=True))
    close(*found)
    close(*several)  # ty: ignore


def test_dropout_masks_differ_from_layer_to_layer() -> None:
    model = stack("reversible:independent=1", dataclasses.replace(SHAPE, dropout=0.5))
    masks = []
    for part in model.modules():
        if type(part).__name__ == "Dropout":
            part.register_forward_hook(lambda module, given, out: masks.append(out == 0.0))
    model(state())
    assert len(masks) == 8 and all(not torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])


@pytest.mark.parametrize("spelling", ALL)
def test_decoding_with_a_cache_is_recomputing(spelling: str) -> None:
    model = build(spelling, "language_small", vocabulary=17, width=8, heads=2, depth=4, hidden=16).eval()
    ids, cache = torch.randint(0, 17, (3, 7)), Cache()
    whole = model(ids).logits
    for start, end in ((0, 4), (4, 5), (5, 7)):
        found = model(ids[:, start:end], cache=cache).logits
        torch.testing.assert_close(found, whole[:, start:end], rtol=0, atol=1e-11)


def test_transevolve_blocks_are_run_back() -> None:
    words = "transevolve:method=reversible-heun,blocks=2,gradient="
    one, other = stack(f"{words}reversible", SHAPE), stack(f"{words}backprop", SHAPE)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        b.data.copy_(a.data)
    x = state()
    close(*(list(torch.autograd.grad(m(x).pow(3).sum(), list(m.parameters()))) for m in (one, other)))
    assert drift(one) < 1e-12


def test_a_flow_alone_is_run_back_too() -> None:
    field = stack("parallel", SHAPE).flows[0].field  # ty: ignore
    flow, plain = (Flow(field, wrap(FixedSteps(ReversibleHeun(), 4))) for wrap in (Reversible, lambda s: s))
    x = state()
    close(*(list(torch.autograd.grad(f(x).pow(3).sum(), list(field.parameters()))) for f in (flow, plain)))
    assert flow.solver.drift is not None  # ty: ignore


def test_autocast_is_that_of_the_forward_pass() -> None:
    torch.set_default_dtype(torch.float32)
    one, other = beside("reversible")
    x, found = torch.randn(2, 5, 8), []
    for model in (one, other):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().pow(3).sum()
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    close(list(found[0]), list(found[1]), 2e-2)
    with pytest.raises(OdeumError, match="single precision at least"):
        one.bfloat16()(x.bfloat16())


def test_it_compiles_as_backpropagation() -> None:
    torch.compiler.reset()
    model, x = stack("reversible", dataclasses.replace(SHAPE, depth=2)), state()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    close(*(list(torch.autograd.grad(m(x).pow(3).sum(), list(model.parameters()))) for m in (model, compiled)))
    torch.compiler.reset()


# ------------------------------------------------------------------------------------------------- refusals


class Elsewhere(Field):
    """Reads a tensor that nobody told about."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [torch.ones(8, requires_grad=True)]

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return x * self.hidden[0]


def test_what_cannot_be_right_is_a_sentence() -> None:
    x = state().requires_grad_()
    model = stack("reversible", SHAPE)
    out = model(x).sum()
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    with pytest.raises(OdeumError, match="changed in place since the forward pass"):
        out.backward()
    flow = Flow(Elsewhere(), Reversible(FixedSteps(ReversibleHeun())))
    with pytest.raises(OdeumError, match="the reversible gradient does not reach a tensor of shape"):
        flow(x).sum().backward()
    flows = [Flow(Contraction(), Reversible(FixedSteps(Leapfrog())), 0.0, t) for t in (1.0, 1.5)]
    with pytest.raises(OdeumError, match="needs layers and steps of one length"):
        Stack(flows)(x)


class Contraction(Field):
    """dx/dt = rate x."""

    def __init__(self, rate: float = -1.0) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(rate))

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.rate * x


def test_a_way_back_that_is_lost_is_told() -> None:
    """Half of the velocity is forgotten each step: 2^60 times the rounding."""
    model = stack("momentum:gamma=0.5,method=euler,gradient=reversible", dataclasses.replace(SHAPE, depth=60))
    with pytest.raises(Diverged, match="met the first state again with an error of"):
        model(state()).sum().backward()


@pytest.mark.parametrize(
    ("spelling", "sentence"),
    [
        ("sequential:gradient=reversible", "gradient=reversible cannot be combined with lie-trotter: its steps cannot"),
        ("rk4:gradient=reversible", "gradient=reversible cannot be combined with rk4: its steps cannot"),
        ("continuous:gradient=reversible", "gradient=reversible cannot be combined with dopri5: its steps cannot"),
        (
            "momentum:gamma=0,gradient=reversible",
            "gradient=reversible cannot be combined with momentum: its steps cannot",
        ),
        ("momentum:norm=post,gradient=reversible", "cannot undo a norm after the steps"),
        ("dense:gradient=reversible", "gradient=reversible cannot be combined with dense: its steps cannot"),
        ("hyper:gradient=reversible", "gradient=reversible cannot be combined with hyper: its steps cannot"),
        ("reversible:scheme=heun,method=rk4", "method=rk4 is for coupling and momentum"),
        ("reversible:keep=0.5", "keep=0.5 applies to scheme=coupling only, but scheme=revnet is set"),
        ("reversible:gamma=0.5", "gamma=0.5 applies to scheme=momentum only"),
        ("reversible:scheme=coupling,keep=0", "must be a number above 0 and at most 1, got 0"),
        ("reversible:scheme=coupling,method=leapfrog", "coupling cannot be combined with leapfrog: it makes"),
        ("reversible:norm=shared", "revnet needs two terms"),
        ("reversible:norm=post-sum,scheme=heun", "no place for a norm after the step"),
        ("leapfrog:gradient=reversible,norm=post", "cannot undo a norm after the steps; use norm=pre"),
        ("reversible:scheme=euler", "unknown scheme of reversible 'euler'"),
    ],
)
def test_what_does_not_go_together_is_a_sentence(spelling: str, sentence: str) -> None:
    with pytest.raises(OdeumError) as caught:
        stack(spelling, SHAPE)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("spelling", SCHEMES.values(), ids=SCHEMES)
def test_describe_says_how_a_scheme_behaves(spelling: str) -> None:
    facts = describe(spelling, dataclasses.replace(build("parallel", "vit_8").settings), detail=False)
    assert facts["stability"]
