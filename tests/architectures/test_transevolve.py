"""TransEvolve's evolved attention: the published polynomial, written out here, against the forms that we run."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import close
from torch import Tensor
from torch.utils import _pytree as pytree

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Cache, Context, Source, Sum
from odeum.fields.transevolve.block import Anchored
from odeum.fields.transevolve.evolved_attention import EvolvedAttention, EvolvedCrossAttention
from odeum.fields.transevolve.forms import Anchor, Flex, Fused, Linear, Shared, Single
from odeum.fields.transevolve.measure import Measure
from odeum.fields.transevolve.rotation import RotationFeedForward
from odeum.flow import Flow, Stack
from odeum.integrators import RK4, Adaptive, FixedSteps, RungeKutta, Solver
from odeum.kernels.exponential import Ledger
from odeum.models.settings import Shape

WIDTH, HEADS, TAU = 24, 3, 10
CASES = ("self", "causal", "padded", "both", "cross")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def definition(
    measure: Measure,
    field: EvolvedAttention,
    x0: Tensor,
    keys0: Tensor,
    v: Tensor,
    t: float,
    mask: Tensor | None,
    wk_time: Tensor,
) -> Tensor:
    """softmax(A0 + A1·T + T·A2 + T·A3·T) v W_O, all four terms, as published; `wk_time` are W_K's time columns."""
    q, k = measure.q(x0), measure.k(keys0)
    qh, kh = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in (q, k))
    a0 = qh @ kh.transpose(-1, -2) / math.sqrt(qh.shape[-1])
    wq_time = measure.time.unflatten(1, (HEADS, TAU))
    wk_time = wk_time.unflatten(1, (HEADS, TAU))
    p = torch.arange(HEADS * TAU // 2).to(x0.dtype)
    waves = torch.cat((torch.sin(t * math.pi * p / 64), torch.cos(t * math.pi * p / 64)))
    depth = (field.coefficients * waves).unflatten(0, (HEADS, TAU))
    a1 = torch.einsum("dht,bld,ht->bhl", wk_time, q, depth)[..., :, None]
    a2 = torch.einsum("dht,bld,ht->bhl", wq_time, k, depth)[..., None, :]
    a3 = torch.einsum("dht,dht,ht,ht->h", wq_time, wk_time, depth, depth)[:, None, None]
    scores = a0 + a1 + a2 + a3
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    values = v.unflatten(-1, (HEADS, -1)).transpose(1, 2)
    return (scores.softmax(dim=-1) @ values).transpose(1, 2).flatten(-2) @ field.out.weight.T


class Setting:
    """A measure, a field, states and a mask, all from one seed."""

    def __init__(self, case: str, form: str, dtype: torch.dtype, length: int = 9) -> None:
        torch.manual_seed(1)
        self.cross = case == "cross"
        self.measure = Measure(WIDTH, HEADS, TAU, form=form).to(dtype)
        norm = torch.nn.LayerNorm(WIDTH)
        torch.nn.init.normal_(norm.weight)
        sizes = (WIDTH, HEADS, TAU)
        self.field = (EvolvedCrossAttention(*sizes, norm=norm) if self.cross else EvolvedAttention(*sizes)).to(dtype)
        self.x0, self.x = (torch.randn(2, length, WIDTH, dtype=dtype, requires_grad=True) for _ in range(2))
        self.memory = torch.randn(2, length - 2, WIDTH, dtype=dtype, requires_grad=True)
        keys = length - 2 if self.cross else length
        padding = (torch.arange(keys) < torch.tensor([[keys], [keys - 3]]))[:, None, None]
        order = torch.ones(length, length, dtype=torch.bool).tril()
        self.source = Source(
            causal=case in ("causal", "both"),
            mask=padding if case in ("padded", "both", "cross") else None,
            memory=self.memory if self.cross else None,
        )
        parts = [m for m in (self.source.mask, order if self.source.causal else None) if m is not None]
        self.mask = parts[0] & parts[-1] if parts else None
        self.wk_time = torch.randn_like(self.measure.time).requires_grad_()

    def anchor(self) -> Anchor:
        return self.measure(self.x0, self.source, cross=self.cross)

    def ours(self, t: float, anchor: Anchor) -> Tensor:
        source = self.source._replace(anchor=anchor)
        context = Context(other=source) if self.cross else Context(own=source)
        return self.field(t, self.x, context)

    def defined(self, t: float) -> Tensor:
        values = self.field.norm(self.memory) if isinstance(self.field, EvolvedCrossAttention) else self.x
        keys0 = self.memory if self.cross else self.x0
        return definition(self.measure, self.field, self.x0, keys0, values, t, self.mask, self.wk_time)

    def leaves(self) -> list[Tensor]:
        state = [self.x0, self.memory] if self.cross else [self.x0, self.x]
        return [*state, *self.measure.parameters(), *self.field.parameters()]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", ["shared", "fused"])
def test_the_exact_forms_equal_the_published_polynomial(form: str, case: str, dtype: torch.dtype) -> None:
    """At every depth, between the layers too, in outputs and in all gradients together."""
    s = Setting(case, form, dtype)
    anchor = s.anchor()
    ours = torch.stack([s.ours(t, anchor) for t in (0.0, 1.0, 2.5, 5.0, 11.0)])
    defined = torch.stack([s.defined(t) for t in (0.0, 1.0, 2.5, 5.0, 11.0)])
    close(ours, defined, TOLERANCE[dtype])
    weight = torch.randn_like(ours)
    for mine, theirs in zip(
        torch.autograd.grad((ours * weight).sum(), s.leaves()),
        torch.autograd.grad((defined * weight).sum(), s.leaves()),
        strict=True,
    ):
        close(mine, theirs, TOLERANCE[dtype])


@pytest.mark.slow  # flex attention loads torch's compiler
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_flex_attention_equals_the_published_polynomial(case: str) -> None:
    """Called itself, and without gradients, of which it has none on a CPU: there the fused form stands in for it."""
    s = Setting(case, "flex", torch.float64)
    fused = s.anchor()
    assert type(fused) is Fused
    for t in (0.0, 2.5, 11.0):
        close(s.ours(t, Flex(*fused)), s.defined(t), 1e-10)


@pytest.mark.parametrize("case", ["self", "causal", "both"])
def test_tiles_and_causal_blocks_change_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odeum.kernels.exponential.TILE", 4096)
    monkeypatch.setattr("odeum.kernels.exponential.CAUSAL_TILE", 16)
    s = Setting(case, "shared", torch.float64, length=75)
    ours, defined = s.ours(2.0, s.anchor()), s.defined(2.0)
    close(ours, defined, 1e-10)
    weight = torch.randn_like(ours)
    for mine, theirs in zip(
        torch.autograd.grad((ours * weight).sum(), s.leaves()),
        torch.autograd.grad((defined * weight).sum(), s.leaves()),
        strict=True,
    ):
        close(mine, theirs, 1e-10)


def test_the_time_columns_of_w_k_are_dead() -> None:
    s = Setting("self", "shared", torch.float64)
    for t in (0.0, 1.0, 5.0):
        (gradient,) = torch.autograd.grad(s.defined(t).square().sum(), [s.wk_time])
        assert float(gradient.abs().max()) < 1e-12
    (alive,) = torch.autograd.grad(s.defined(1.0).square().sum(), [s.measure.time])
    assert float(alive.abs().max()) > 1e-4


def test_a_gradient_of_a_part_does_not_spoil_the_next_one() -> None:
    """The factors of P's gradient are gathered on the way; a pass that stops early must leave nothing behind."""
    s = Setting("self", "shared", torch.float64)
    out = s.ours(1.0, s.anchor()).square().sum()
    whole = torch.autograd.grad(out, [s.measure.q.weight], retain_graph=True)[0]
    torch.autograd.grad(out, [s.x], retain_graph=True)
    again = torch.autograd.grad(out, [s.measure.q.weight], retain_graph=True)[0]
    assert torch.equal(whole, again)


@pytest.mark.parametrize("case", ["self", "causal", "padded"])
def test_a_steep_drift_is_exact_and_finite(case: str) -> None:
    """Keys whose drift spans 200: e^b would underflow, and in a causal row all seen keys may be far below the top."""
    s = Setting(case, "shared", torch.float32)
    anchor = s.anchor()
    spread = torch.linspace(-100.0, 100.0, 9)
    with torch.no_grad():
        b = s.field.drift(1.0, anchor)
        want = spread.view(1, 1, -1).expand_as(b)
        v = s.x.detach().unflatten(-1, (HEADS, -1)).transpose(1, 2)
        ours = anchor.act(want, v, s.source)
        scores = (anchor.q @ anchor.k.transpose(-1, -2)).double() / math.sqrt(anchor.q.shape[-1]) + want[..., None, :]
        if s.mask is not None:
            scores = scores.masked_fill(~s.mask, -torch.inf)
        right = (scores.softmax(-1) @ v.double()).transpose(1, 2).flatten(-2)
    assert ours.isfinite().all()
    close(ours.double(), right, 1e-4)


def test_just_within_the_guard_is_exact_too() -> None:
    s = Setting("causal", "shared", torch.float32)
    anchor = s.anchor()
    with torch.no_grad():
        want = torch.linspace(-19.9, 19.9, 9).view(1, 1, -1).expand(2, HEADS, 9)
        v = s.x.detach().unflatten(-1, (HEADS, -1)).transpose(1, 2)
        ours = anchor.act(want, v, s.source)
        scores = (anchor.q @ anchor.k.transpose(-1, -2)).double() / math.sqrt(anchor.q.shape[-1]) + want[..., None, :]
        assert s.mask is not None
        right = (scores.masked_fill(~s.mask, -torch.inf).softmax(-1) @ v.double()).transpose(1, 2).flatten(-2)
    close(ours.double(), right, 1e-5)


@pytest.mark.parametrize("form", ["shared", "fused", "linear"])
def test_a_query_that_sees_nothing_gets_zeros(form: str) -> None:
    measure, field = Measure(WIDTH, HEADS, form=form), EvolvedAttention(WIDTH, HEADS)
    x = torch.randn(2, 5, WIDTH, requires_grad=True)
    source = Source(mask=torch.tensor([[True] * 5, [False] * 5])[:, None, None])
    out = field(1.0, x, Context(own=source._replace(anchor=measure(x, source))))
    assert out.isfinite().all() and not out[1].any() and out[0].any()
    out.sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_auto_shares_on_a_cpu_while_the_exponential_is_small() -> None:
    measure = Measure(WIDTH, 4)
    assert measure.form_at(512) == "shared"
    assert measure.form_at(512, device="cuda") == "fused"
    assert measure.form_at(16_384, batch=2) == "fused"
    assert Measure(WIDTH, 4, form="linear").form_at(512, device="cuda") == "linear"
    with pytest.raises(OdeumError, match="known: auto, shared, fused, flex, linear"):
        Measure(WIDTH, 4, form="flash")


FORMS = {"shared": Shared, "fused": Fused, "linear": Linear, "auto": Shared}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_an_object_made_of_tensors(form: str) -> None:
    """What is measured, and nothing else: an adjoint differentiates the leaves, and finds the form again."""
    s = Setting("causal", form, torch.float64)
    anchor = s.anchor()
    assert type(anchor) is FORMS[form]
    leaves, spec = pytree.tree_flatten(anchor)
    rest = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
    assert all(leaf is None or isinstance(leaf, bool | Ledger) for leaf in rest)
    again = pytree.tree_unflatten(leaves, spec)
    assert torch.equal(s.ours(1.5, anchor), s.ours(1.5, again))


@pytest.mark.parametrize("form", FORMS)
def test_a_single_query_of_a_cached_pass_has_its_own_form(form: str) -> None:
    """Position by position, the softmax itself is what the whole sentence gives."""
    torch.manual_seed(0)
    measure, field = Measure(WIDTH, HEADS, form=form).double(), EvolvedAttention(WIDTH, HEADS).double()
    x, source, parts = torch.randn(2, 6, WIDTH, dtype=torch.float64), Source(causal=True, cache=Cache()), []
    assert source.cache is not None
    for i in range(6):
        source.cache.begin()
        anchor = measure(x[:, i : i + 1], source)
        assert type(anchor) is (Linear if form == "linear" else Single)
        parts.append(field(1.0, x[:, i : i + 1], Context(own=source._replace(anchor=anchor))))
        source.cache.advance(1)
    whole = Source(causal=True)
    right = field(1.0, x, Context(own=whole._replace(anchor=measure(x, whole))))
    close(torch.cat(parts, dim=1), right, 1e-10)


@pytest.mark.parametrize("causal", [False, True])
def test_the_linear_form_comes_closer_with_more_features(causal: bool) -> None:
    torch.manual_seed(0)
    x = 0.5 * torch.randn(2, 150, WIDTH)
    source = Source(causal=causal, mask=(torch.arange(150) < torch.tensor([[150], [120]]))[:, None, None])
    exact, field = Measure(WIDTH, HEADS, form="shared"), EvolvedAttention(WIDTH, HEADS)
    errors = []
    with torch.no_grad():
        right = field(2.0, x, Context(own=source._replace(anchor=exact(x, source))))
        for features in (16, 256, 4096):
            linear = Measure(WIDTH, HEADS, form="linear", features=features)
            linear.load_state_dict(exact.state_dict(), strict=False)
            out = field(2.0, x, Context(own=source._replace(anchor=linear(x, source))))
            errors.append(float((out - right).norm() / right.norm()))
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.1


def test_the_linear_form_does_not_look_ahead() -> None:
    torch.manual_seed(0)
    model = stack("transevolve:attention=linear", Shape(WIDTH, HEADS, 2)).double()
    x = torch.randn(1, 300, WIDTH, dtype=torch.float64)
    changed = x.clone()
    changed[:, 200:] += 1.0
    context = Context(own=Source(causal=True))
    close(model(changed, context)[:, :200], model(x, context)[:, :200], 1e-9)


def test_depth_is_continuous() -> None:
    """T(t) is defined for real t: one layer's field integrated adaptively is the limit of finer and finer steps."""
    torch.manual_seed(0)
    field = Sum(EvolvedAttention(WIDTH, HEADS), RotationFeedForward(WIDTH, activation="gelu")).double()
    measure, x = Measure(WIDTH, HEADS).double(), torch.randn(2, 5, WIDTH, dtype=torch.float64)

    def solve(solver: Solver) -> Tensor:
        return Anchored(Stack([Flow(field, solver, 0.0, 2.0)]), None, measure)(x)

    with torch.no_grad():
        limit = solve(Adaptive(rtol=1e-9, atol=1e-9))
        errors = [float((solve(FixedSteps(RungeKutta(RK4), n)) - limit).abs().max()) for n in (4, 8)]
    assert errors[1] < 1e-4 and 10 < errors[0] / errors[1] < 22  # order four
