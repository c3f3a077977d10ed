"""Members beside their papers' equations, written out here in plain torch with weights that are not those of the start.

What stands in test_history, test_streams, test_looping, test_reversible and test_solvers by hand is not repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from scripts import load_script
from torch import Tensor, nn
from torch.func import functional_call

from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Context, Source
from odeum.fields.bases import Knots
from odeum.flow import set_steps
from odeum.integrators.energy import kinetic_energy
from odeum.lab.testing import perturbed
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=5, hidden=16)
EXPLICIT = {2: (3 / 2, -1 / 2), 3: (23 / 12, -4 / 3, 5 / 12), 4: (55 / 24, -59 / 24, 37 / 24, -3 / 8)}
IMPLICIT = {3: (5 / 12, 2 / 3, -1 / 12), 4: (3 / 8, 19 / 24, -5 / 24, 1 / 24)}
Function = Callable[[Tensor], Tensor]


def made(spelling: str) -> Any:
    return perturbed(stack(spelling, SHAPE))


def fields(model: Any) -> list[Function]:
    """The field of each layer, as a function of the state."""
    return [lambda x, flow=flow, t=t: flow.field(t, x, Context()) for flow, t in model.timed()]


def sublayers(model: Any) -> list[tuple[Function, Any]]:
    """Attention and feed-forward of each layer in turn, each with the coefficients that it has."""
    return [
        (lambda x, term=term, t=t: term(t, x, Context()), part)
        for flow, t in model.timed()
        for term, part in zip(flow.field.terms, flow.solver.method.parts, strict=True)
    ]


def rms(x: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + SHAPE.norm_eps).sqrt()


def weighed(weights: Any, values: Any) -> Tensor:
    return sum(w * v for w, v in zip(weights, values, strict=True))  # ty: ignore


def agree(model: Any, x: Tensor, y: Tensor) -> None:
    torch.testing.assert_close(model(x), model.norm(y), rtol=0, atol=1e-12)


def state() -> Tensor:
    return torch.randn(2, 6, 8)


# ------------------------------------------------------------------------------------------------------ multistep


def start(order: int, f: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    """Heun, Bogacki and Shampine, or Kutta: what the first steps are made by, and the field at the begin."""
    k1 = f(x)
    if order == 2:
        return x + (k1 + f(x + k1)) / 2, k1
    k2 = f(x + k1 / 2)
    if order == 3:
        return x + 2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * f(x + 3 / 4 * k2), k1
    k3 = f(x + k2 / 2)
    return x + (k1 + 2 * k2 + 2 * k3 + f(x + k3)) / 6, k1


@pytest.mark.parametrize("order", EXPLICIT)
def test_adams_and_bashforth(order: int) -> None:
    model, x = made(f"adams-bashforth:order={order}"), state()
    y, past = x, []
    for i, f in enumerate(fields(model)):
        if i < order - 1:
            y, k = start(order, f, y)
        else:
            k = f(y)
            y = y + weighed(EXPLICIT[order], [k, *past])
        past = [k, *past][: order - 1]
    agree(model, x, y)


@pytest.mark.parametrize("order", IMPLICIT)
def test_adams_and_moulton(order: int) -> None:
    model, x = made(f"adams-moulton:order={order}"), state()
    y, past = x, []
    for i, f in enumerate(fields(model)):
        if i < order - 2:
            y, k = start(order, f, y)
        else:
            k = f(y)
            foreseen = y + weighed(EXPLICIT[order - 1], [k, *past])
            y = y + weighed(IMPLICIT[order], [f(foreseen), k, *past])
        past = [k, *past][: order - 2]
    agree(model, x, y)


# -------------------------------------------------------------------------------------------- two states at a time


def test_leapfrog() -> None:
    model, x = made("leapfrog"), state()
    first, *rest = fields(model)
    before, y = x, x + first(x)
    for f in rest:
        before, y = y, before + 2 * f(y)
    agree(model, x, y)


def test_reversible_heun() -> None:
    model, x = made("reversible:scheme=heun"), state()
    y = twin = x
    for f in fields(model):
        moved = 2 * y - twin + f(twin)
        y, twin = y + (f(twin) + f(moved)) / 2, moved
    agree(model, x, y)


def test_coupling() -> None:
    """Of Kutta's method, whose steps of length −1 lead away from the twin."""
    model, x = made("reversible:scheme=coupling,method=rk4,keep=0.9"), state()

    def change(f: Function, x: Tensor, h: float) -> Tensor:
        return start(4, lambda z: h * f(z), x)[0] - x

    y = z = x
    for f in fields(model):
        y = 0.9 * y + 0.1 * z + change(f, z, 1.0)
        z = z - change(f, y, -1.0)
    agree(model, x, y)


# ------------------------------------------------------------------------------------------ streams and past values


@pytest.mark.parametrize("block", [1, 2, 3, 99])
def test_attention_residuals(block: int) -> None:
    """The sources are the embedding, sums of finished blocks, and what the unfinished one has come to."""
    model, x = made(f"attention-residuals:block={block}"), state()

    def read(query: Tensor | None, sources: list[Tensor]) -> Tensor:
        values = torch.stack(sources)
        scores = torch.zeros(len(sources), 1, 1) if query is None else (rms(values) * query).sum(-1)
        return (scores.softmax(0).unsqueeze(-1) * values).sum(0)

    finished, partial, last = [x], [], None
    for count, (f, part) in enumerate(sublayers(model), 1):
        sources = [*finished, sum(partial)] if partial else finished
        partial.append(f(read(part.query, sources)))  # ty: ignore
        if count % block == 0:
            finished, partial = [*finished, sum(partial)], []
        last = part.last_query
    sources = [*finished, sum(partial)] if partial else finished
    agree(model, x, read(last, sources))  # ty: ignore


@pytest.mark.parametrize("n", [1, 3])
def test_dynamic_hyper_connections(n: int) -> None:
    """H ← A_rᵀ H + Bᵀ f(A_mᵀ H), each with its part s tanh(N(H) W)."""
    model, x = made(f"hyper:streams={n}"), state()
    h = x.unsqueeze(-2).expand(2, 6, n, 8)
    for f, part in sublayers(model):
        normed, (w_m, w_b, w_r) = rms(h) * part.gain, part.map.split((1, 1, n), dim=1)
        a_m = part.read.view(n, 1) + part.scale[0] * torch.tanh(normed @ w_m)
        a_r = part.mix.view(n, n).T + part.scale[0] * torch.tanh(normed @ w_r)
        b = part.write.view(1, n) + part.scale[1] * torch.tanh(normed @ w_b).mT
        h = a_r.mT @ h + b.mT @ f((a_m.mT @ h).squeeze(-2)).unsqueeze(-2)
    agree(model, x, h.mean(-2))


@pytest.mark.parametrize("dynamic", [True, False])
def test_identity_hyper_connections(dynamic: bool) -> None:
    """H ← H + Bᵀ f(A_mᵀ H): the streams are read and written, and never mixed."""
    n = 3
    model, x = made(f"hyper:streams={n},mixing=identity,dynamic={dynamic}"), state()
    h = x.unsqueeze(-2).expand(2, 6, n, 8)
    for f, part in sublayers(model):
        read, write = part.read.view(n, 1), part.write.view(1, n)
        if dynamic:
            w_m, w_b = part.map.split((1, 1), dim=1)
            read = read + part.scale[0] * torch.tanh(rms(h) * part.gain @ w_m)
            write = write + part.scale[1] * torch.tanh(rms(h) * part.gain @ w_b).mT
        h = h + write.mT @ f((read.mT @ h).squeeze(-2)).unsqueeze(-2)
    agree(model, x, h.mean(-2))


def test_two_lanes() -> None:
    model, x = made("two-lanes"), state()
    lanes = [x, x]
    for i, (f, part) in enumerate(sublayers(model)):
        out = f(lanes[i % 2])
        lanes = [part.keep * lane + weight * out for lane, weight in zip(lanes, part.write, strict=True)]
    agree(model, x, (lanes[0] + lanes[1]) / 2)


@pytest.mark.parametrize("method", ["lie-trotter", "euler", "rk4"])
def test_residual_scalars(method: str) -> None:
    model, x = made(f"residual-scalars:method={method}"), state()
    y = x
    for flow, t in model.timed():
        scalars = flow.solver.method
        y = (1 + 0.01 * scalars.stream) * y + scalars.input * x
        g, f = ((lambda z, term=term, t=t: term(t, z, Context())) for term in flow.field.terms)
        if method == "lie-trotter":
            y = y + g(y)
            y = y + f(y)
        elif method == "euler":
            y = y + g(y) + f(y)
        else:
            y, _ = start(4, lambda z, g=g, f=f: g(z) + f(z), y)
    agree(model, x, y)


def test_fixed_residual_scalars_are_learned_ones_that_have_these_values() -> None:
    learned, fixed, x = made("residual-scalars"), stack("residual-scalars:stream=0.9,input=0.25", SHAPE), state()
    with torch.no_grad():
        for flow in learned.flows:
            flow.solver.method.stream.fill_(-10.0)
            flow.solver.method.input.fill_(0.25)
    missing = fixed.load_state_dict(learned.state_dict(), strict=False)
    assert not missing.missing_keys and {name.rpartition(".")[2] for name in missing.unexpected_keys} == {
        "stream",
        "input",
    }
    torch.testing.assert_close(fixed(x), learned(x), rtol=0, atol=1e-12)
    with pytest.raises(OdeumError, match=r"fixes both multiples or none, not stream=0\.9 and input=None"):
        stack("residual-scalars:stream=0.9", SHAPE)


def test_what_learned_scalars_became_is_read_off_trained_models() -> None:
    """Means over layers and seeds, rounded, as a spelling of the fixed method."""
    discover = load_script("benchmarks/discover.py")
    models = [stack("residual-scalars:rate=0.1", SHAPE) for _ in range(2)]
    with torch.no_grad():
        for seed, model in enumerate(models):
            for layer, flow in enumerate(model.flows):
                flow.solver.method.stream.fill_(layer - 1.5)
                flow.solver.method.input.fill_(0.1 + 0.02 * seed)
    table = discover.coefficients(models)
    assert [(round(stream, 9), round(given, 9)) for stream, given in table[0]][:2] == [(0.85, 0.1), (0.95, 0.1)]
    assert discover.spelling(table) == "residual-scalars:stream=1.05,input=0.11"
    assert stack(discover.spelling(table), SHAPE)(state()).isfinite().all()


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("last", [1, 2, 5])
def test_lagged_attention(last: int, together: bool) -> None:
    """The attentions of the last layers read what the first of these layers reads; at depth 5, as here."""
    model, x = made(f"lagged-attention:last={last}" + ",method=euler" * together), state()
    y, early = x, x
    for layer, (flow, t) in enumerate(model.timed()):
        early = y if layer <= SHAPE.depth - last else early
        g, f = flow.field.terms
        moved = y + g(t, early, Context())
        y = moved + f(t, y if together else moved, Context())
    agree(model, x, y)
    if last == 1:
        plain = stack("parallel" if together else "sequential", SHAPE)
        plain.load_state_dict(model.state_dict())
        torch.testing.assert_close(plain(x), model(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("together", [False, True])
def test_mudd(together: bool) -> None:
    """q, k, v and the residual of a layer are Σ_j a_j(x) x_j, a = W₂ gelu(W₁ RMS(x)) + b, as is what ends the stack."""
    model, x = made("mudd" + ":method=euler" * together), state()

    def mixed(sums: Any, states: list[Tensor]) -> list[Tensor]:
        a = nn.functional.gelu(rms(states[-1]) @ sums.first.weight.T) @ sums.second.weight.T + sums.bias
        ways = a.chunk(a.shape[-1] // len(states), -1)
        return [weighed(way.split(1, -1), states) for way in ways]

    states = [x]
    for flow, t in model.timed():
        method, (pre, f) = flow.solver.method, flow.field.terms
        q, k, v, y = mixed(method.sums[0], states) if len(states) > 1 else [x] * 4
        g = pre.field
        maps = zip((q, k, v), g.qkv.weight.chunk(3), g.qkv.bias.chunk(3), strict=True)
        q, k, v = ((pre.norm(way) @ matrix.T + bias).view(2, 6, 2, 4).transpose(1, 2) for way, matrix, bias in maps)
        seen = (q @ k.mT / 2).softmax(-1) @ v
        moved = y + g.out(seen.transpose(1, 2).flatten(-2))
        states.append(moved + f(t, y if together else moved, Context()))
    (out,) = mixed(method.last, states)
    agree(model, x, out)


@pytest.mark.parametrize("method", ["lie-trotter", "euler", "rk4"])
def test_keel(method: str) -> None:
    """x ← N(α x + f(N(x))) with the paper's eps; α is the number of norms after a step."""
    model, x = made(f"keel:method={method}"), state()
    alpha, y = SHAPE.depth * (2 if method == "lie-trotter" else 1), x

    def norm(x: Tensor, outer: Any) -> Tensor:
        return nn.functional.layer_norm(x, (8,), outer.weight, outer.bias, SHAPE.norm_eps)

    for flow, t in model.timed():
        if method == "lie-trotter":
            for term in flow.field.terms:
                y = norm(alpha * y + term.field(t, y, Context()), term.outer)
            continue
        whole = lambda z, flow=flow, t=t: flow.field.field(t, z, Context()) / alpha  # noqa: E731
        moved = y + whole(y) if method == "euler" else start(4, whole, y)[0]
        y = norm(alpha * moved, flow.field.outer)
    torch.testing.assert_close(model(x), y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_ngpt(activation: str) -> None:
    """h ← N(h + |α| (N(f(h)) − h)) with N(x) = x / |x|, unit rows and columns, gains of q, k and hidden features."""
    model, x = perturbed(stack("ngpt", replace(SHAPE, activation=activation))), state()

    def unit(x: Tensor, axis: int = -1) -> Tensor:
        return x / x.norm(dim=axis, keepdim=True)

    y = unit(x)
    for flow, _ in model.timed():
        attention, feed = flow.field.terms
        g, f = attention.field, feed.field
        q, k, v = (h.view(2, 6, 2, 4).transpose(1, 2) for h in (y @ unit(g.qkv.weight).T).chunk(3, -1))
        s_q, s_k = (norm.gain.view(2, 1, 4) * 8**0.5 for norm in (g.q_norm, g.k_norm))
        scores = (s_q * unit(q)) @ (s_k * unit(k)).mT * 4**0.5
        seen = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2) @ unit(g.out.weight, 0).T
        y = unit(y + (attention.alpha * 8**0.5 / SHAPE.depth).abs() * (unit(seen) - y))
        h = f.up.gain * 8**0.5 * (y @ unit(f.up.weight).T)
        if activation == "gelu":
            h = nn.functional.gelu(h)
        else:
            gate, value = h.chunk(2, -1)
            h = nn.functional.silu(gate) * value
        y = unit(y + (feed.alpha * 8**0.5 / SHAPE.depth).abs() * (unit(h @ unit(f.down.weight, 0).T) - y))
    torch.testing.assert_close(model(x), 8**0.5 * y, rtol=0, atol=1e-12)


def test_zeros_have_finite_gradients_on_the_sphere() -> None:
    """An embedding of zeros, and queries that see nothing."""
    model = stack("ngpt", SHAPE)
    hidden = Context(own=Source(mask=torch.zeros(1, 1, 6, 6, dtype=torch.bool)))
    for x, context in ((torch.zeros(2, 6, 8), Context()), (state(), hidden)):
        model.zero_grad()
        out = model(x, context)
        out.sum().backward()
        assert out.isfinite().all() and all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", ["mudd", "hyper", "keel", "ngpt"])
def test_the_stream_stays_in_single_precision_under_autocast(name: str) -> None:
    model, x = stack(name, SHAPE).float(), state().float()
    with torch.autocast("cpu", torch.bfloat16):
        *states, _ = model.trajectory(x)
    assert {each.dtype for each in states} == {torch.float32}


def test_steps_with_a_retraction_are_of_first_order() -> None:
    """The distance to the flow on the sphere halves with the step, and each state is on it."""
    model, x = made("ngpt:alpha=0.5"), state()
    ends = []
    for steps in (32, 64, 128):
        set_steps(model, steps)
        ends.append(model(x))
        torch.testing.assert_close(ends[-1].norm(dim=-1), torch.full((2, 6), 8**0.5), rtol=0, atol=1e-12)
    ratio = (ends[0] - ends[1]).norm() / (ends[1] - ends[2]).norm()
    assert 1.9 < ratio < 2.1


@pytest.mark.parametrize("name", ["value-residual", "value-residual:source=input", "moda"])
def test_attention_that_reads_earlier_layers(name: str) -> None:
    """V + g V₁, V + g W x₀, or one softmax over positions and over earlier layers at the query's own position."""
    model, x = made(name), state()
    y, past = x, []
    for flow, t in model.timed():
        pre, f = flow.field.terms
        g, method = pre.field, flow.solver.method
        q, k, v = (h.view(2, 6, 2, 4).transpose(1, 2) for h in g.qkv(pre.norm(y)).chunk(3, -1))
        scores, depth = [q @ k.mT / 2], []
        if name == "moda":
            scores += [(q * key).sum(-1, keepdim=True) / 2 for key, _ in past]
            depth = [value for _, value in past]
        past.append((k, v))
        if name.endswith("input"):
            v = v + method.gain * method.embedding(x).view(2, 6, 2, 4).transpose(1, 2)
        elif name == "value-residual" and len(past) > 1:
            v = v + method.gain * past[0][1]
        weights = torch.cat(scores, -1).softmax(-1)
        seen = weights[..., :6] @ v + sum(weights[..., 6 + i, None] * value for i, value in enumerate(depth))
        y = y + g.out(seen.transpose(1, 2).flatten(-2))
        y = y + f(t, y, Context())
    agree(model, x, y)


@pytest.mark.parametrize("mixing", ["sinkhorn", "permutations"])
def test_manifold_hyper_connections(mixing: str) -> None:
    model, x, n = made(f"mhc:streams=3,mixing={mixing}"), state(), 3
    h = x.unsqueeze(-2).expand(2, 6, n, 8)
    for f, part in sublayers(model):
        dynamic = (rms(h.flatten(-2)) @ part.map).split((n, n, part.bias.numel() - 2 * n), -1)
        static = part.bias.split((n, n, part.bias.numel() - 2 * n))
        pre, post, res = (a * d + s for a, d, s in zip(part.scale, dynamic, static, strict=True))
        if mixing == "sinkhorn":
            res = res.unflatten(-1, (n, n)).exp()
            for _ in range(20):
                res = res / res.sum(-1, keepdim=True)
                res = res / res.sum(-2, keepdim=True)
        else:
            orders = [torch.eye(n)[list(order)] for order in itertools.permutations(range(n))]
            res = torch.einsum("blp,pij->blij", res.softmax(-1), torch.stack(orders))
        out = f((pre.sigmoid().unsqueeze(-2) @ h).squeeze(-2))
        h = res @ h + 2 * post.sigmoid().unsqueeze(-1) * out.unsqueeze(-2)
    agree(model, x, h.mean(-2))


def test_a_step_that_is_too_long_for_a_doubly_stochastic_mix_is_refused() -> None:
    with pytest.raises(Exception, match=r"doubly stochastic for dt from 0 to 1, not for 2; give more steps per layer"):
        made("mhc:interval=2")
    with pytest.raises(Exception, match="iterations=5 apply to mixing=sinkhorn only, but mixing=permutations is set"):
        made("mhc:mixing=permutations,iterations=5")
    assert made("mhc:interval=2,steps=2")(state()).isfinite().all()


# ---------------------------------------------------------------------------------------------- weights over time


def features(u: float) -> Tensor:
    rates = 10.0 ** (1 - 2 * torch.arange(16.0) / 15)
    return torch.cat((torch.tensor([u]), (u * rates).sin(), (u * rates).cos()))


def test_weights_of_a_network_of_the_time() -> None:
    """W(t) = W₀ + Σ eₖ(t) Wₖ, e of each weight a Linear–SiLU–Linear of the time features."""
    model, x = made("parallel:weights=hyper,rank=3"), state()
    y = x
    for layer in range(SHAPE.depth):
        change = torch.zeros_like(y)
        for term in model.flows[0].field.terms:
            first, *others = (dict(knot.named_parameters()) for knot in term.knots)
            inner = nn.functional.silu(term.basis.inner.weight @ features(layer / SHAPE.depth))
            e = (term.basis.outer.weight @ inner).view(len(first), 3)
            made_ = {
                name: first[name] + weighed(row, [other[name] for other in others])
                for name, row in zip(first, e, strict=True)
            }
            change = change + functional_call(term.knots[0], made_, (float(layer), y, Context()))
        y = y + change
    agree(model, x, y)


@pytest.mark.parametrize("degree", [1, 4])
def test_legendre_weights(degree: int) -> None:
    """W(t) = Σ C_k P_k(s), P_k of numpy, s from −1 to 1 over the layers."""
    numpy = pytest.importorskip("numpy")
    model, x = made(f"parallel:weights=legendre,degree={degree}"), state()
    y = x
    for layer in range(SHAPE.depth):
        values = numpy.polynomial.legendre.legvander(2 * layer / SHAPE.depth - 1, degree).ravel()
        change = torch.zeros_like(y)
        for term in model.flows[0].field.terms:
            rows = [dict(knot.named_parameters()) for knot in term.knots]
            weights = {name: weighed(map(float, values), [row[name] for row in rows]) for name in rows[0]}
            change = change + functional_call(term.knots[0], weights, (float(layer), y, Context()))
        y = y + change
    agree(model, x, y)


def test_adaln() -> None:
    """(1 + g) f((1 + s) N(x) + b), all three of the time and the step's length."""
    model, x = made("parallel:weights=adaln"), state()
    y = x
    for layer in range(SHAPE.depth):
        change = torch.zeros_like(y)
        for term in model.flows[0].field.terms:
            told = term.time(features(layer / SHAPE.depth)) + term.length(features(1 / SHAPE.depth))
            s, b, g = term.adapt(nn.functional.silu(told)).view(3, -1)
            change = change + (1 + g) * term.field(float(layer), (1 + s) * term.norm(y) + b, Context())
        y = y + change
    agree(model, x, y)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_cubics_are_hermites_with_the_slopes_of_the_neighbours(count: int) -> None:
    interpolate = pytest.importorskip("scipy.interpolate")
    values, knots = torch.randn(count), torch.linspace(0, 5, count)
    (slopes,) = torch.gradient(values, spacing=(knots,))
    basis, times = Knots(count, "cubic", 0.0, 5.0), torch.linspace(0, 5, 41)
    found = [basis(time, [values.unbind()])[0] for time in times.tolist()]
    wanted = interpolate.CubicHermiteSpline(knots.numpy(), values.numpy(), slopes.numpy())(times.numpy())
    torch.testing.assert_close(torch.stack(found), torch.from_numpy(wanted), rtol=0, atol=1e-12)


# ----------------------------------------------------------------------------------------------------- the others


def test_implicit_midpoint() -> None:
    model, x = made("implicit-midpoint:iterations=7"), state()
    y = x
    for f in fields(model):
        k = f(y)
        for _ in range(7):
            k = f(y + k / 2)
        y = y + k
    agree(model, x, y)


def test_kinetic_energy() -> None:
    """∫ |dx/dt|² dt by the chords of half steps, a mean over the numbers of the state."""
    model, x = made("rk4:interval=0.5,steps=2"), state()
    with kinetic_energy(model) as energy:
        model(x)
    y, total = x, torch.zeros(())
    for f in fields(model):
        for _ in range(2):
            before, (y, _) = y, start(4, lambda z, f=f: f(z) / 4, y)
            total = total + ((y - before) / 0.25).pow(2).mean() * 0.25
    torch.testing.assert_close(energy.total, total, rtol=1e-12, atol=0)
