"""Methods with a history: it lives for one pass, goes from layer to layer, and each method computes its formula."""

from __future__ import annotations

import copy
import dataclasses
import math
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from odeum import Decoder, Encoder, build, set_solver, set_steps
from odeum.architectures import stack
from odeum.decode import beam_search
from odeum.errors import OdeumError
from odeum.fields import Cache, Context, FeedForward, Field, Increment, PreNorm, SelfAttention, Source, Sum
from odeum.fields.roles import by_role
from odeum.flow import Flow, Stack
from odeum.integrators import (
    EULER,
    AdamsBashforth,
    Checkpointed,
    FixedSteps,
    LieTrotter,
    Method,
    Momentum,
    Nesterov,
    RungeKutta,
    Solver,
    Strang,
)
from odeum.integrators.dense import Dense
from odeum.integrators.streams import HyperConnections
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=4, hidden=16)


def layer(method: Method, field: Field | None = None, duration: float = 1.0) -> Flow:
    return Flow(field or branches(), FixedSteps(method), 0.0, duration)


def branches() -> Sum:
    return Sum(PreNorm(nn.LayerNorm(8), SelfAttention(8, 2)), PreNorm(nn.LayerNorm(8), FeedForward(8, 16)))


def state() -> Tensor:
    return torch.randn(2, 5, SHAPE.width)


def beside(spelling: str, plain: str, shape: Shape = SHAPE, cross: bool = False) -> tuple[nn.Module, nn.Module]:
    """Two stacks with the same weights in their fields."""
    one, other = stack(spelling, shape, cross), stack(plain, shape, cross)
    left = one.load_state_dict(other.state_dict(), strict=False)
    assert not left.unexpected_keys and not any(".field." in name for name in left.missing_keys)
    return one, other


def perturbed(model: nn.Module) -> nn.Module:
    """Coefficients that are not those of the start."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".solver." in name:
                weight.add_(torch.randn_like(weight) / 10)
    return model


# ------------------------------------------------------------------------------------------- Adams–Bashforth


def test_unshared_layers_use_the_field_of_the_layer_before() -> None:
    flows, x = [layer(AdamsBashforth()) for _ in range(3)], state()
    first, second, third = ((lambda x, flow=flow: flow.field(0.0, x, Context())) for flow in flows)
    a = x + (first(x) + first(x + first(x))) / 2  # Heun starts
    b = a + 1.5 * second(a) - 0.5 * first(x)
    c = b + 1.5 * third(b) - 0.5 * second(a)
    torch.testing.assert_close(Stack(flows)(x), c, rtol=0, atol=1e-12)
    torch.testing.assert_close(list(Stack(flows).trajectory(x))[2], b, rtol=0, atol=1e-12)


def test_a_longer_step_weighs_the_past_more() -> None:
    flows, x = [layer(AdamsBashforth(), duration=d) for d in (0.5, 1.0)], state()
    first, second = ((lambda x, flow=flow: flow.field(0.0, x, Context())) for flow in flows)
    a = x + (first(x) + first(x + first(x) / 2)) / 4
    torch.testing.assert_close(Stack(flows)(x), a + 2 * second(a) - first(x), rtol=0, atol=1e-12)


def test_the_first_layer_alone_costs_a_second_evaluation() -> None:
    counted: list[int] = []
    model = stack("parallel:method=adams-bashforth", SHAPE)
    for module in model.modules():
        if isinstance(module, SelfAttention):
            module.register_forward_hook(lambda *_: counted.append(1))
    model(state())
    assert len(counted) == SHAPE.depth + 1


def test_the_gradient_passes_through_what_is_remembered() -> None:
    model = stack("adams-bashforth", SHAPE)
    x = torch.randn(1, 3, 8, requires_grad=True)
    assert torch.autograd.gradcheck(model, (x,))


# ------------------------------------------------------------------------------------ a history of each pass


def test_nothing_is_remembered_from_one_pass_to_the_next() -> None:
    model, x, y = stack("adams-bashforth:independent=2", SHAPE), state(), state()
    alone = model(x), model(y)
    steps = [model.trajectory(z) for z in (x, y)]
    interleaved = list(zip(*steps, strict=True))[-1]
    for i, z in enumerate((x, y)):
        assert torch.equal(model(z), alone[i])
        assert torch.equal(model.norm(interleaved[i]), alone[i])
    assert torch.equal(copy.deepcopy(model)(x), alone[0])


def test_a_pass_that_failed_leaves_nothing() -> None:
    model, x = stack("adams-bashforth", SHAPE), state()
    expected = model(x)
    hook = model.flows[2].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("stop")))
    with pytest.raises(RuntimeError, match="stop"):
        model(x)
    hook.remove()
    assert torch.equal(model(x), expected)


def test_two_threads_do_not_meet() -> None:
    model = stack("adams-bashforth", SHAPE)
    inputs = [state() for _ in range(4)]
    expected, found = [model(x) for x in inputs], {}

    def work(i: int) -> None:
        found[i] = [model(inputs[i]) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(out, expected[i]) for i in range(4) for out in found[i])


def test_the_history_begins_anew_after_another_method_and_in_a_block() -> None:
    flows, x = (
        [layer(AdamsBashforth()), layer(RungeKutta(EULER)), layer(AdamsBashforth()), layer(AdamsBashforth())],
        state(),
    )
    y = Stack(flows[2:])(Stack(flows[1:2])(Stack(flows[:1])(x)))
    assert torch.equal(Stack(flows)(x), y)
    blocks = stack("transevolve:method=adams-bashforth,blocks=2", SHAPE)
    one, other = blocks.flows
    assert torch.equal(blocks(x), other(one(x)))


def test_a_flow_alone_remembers_its_own_steps() -> None:
    flow, x = Flow(branches(), FixedSteps(AdamsBashforth(), 4)), state()
    assert torch.equal(flow(x), Stack([flow])(x))
    quarter = Flow(flow.field, FixedSteps(AdamsBashforth(), 4), 0.0, 0.25)
    torch.testing.assert_close(flow(x), Stack([quarter], [0] * 4)(x), rtol=0, atol=1e-12)
    assert not torch.allclose(flow(x), quarter(quarter(quarter(quarter(x)))))


def test_a_trained_model_may_be_given_a_method_that_remembers() -> None:
    model, x = Encoder(8, 2, 3, "parallel"), state()
    before = model(x)
    set_solver(model, FixedSteps(AdamsBashforth()))
    assert not torch.equal(model(x), before)
    set_steps(model, 3)
    assert model(x).isfinite().all()


def test_whole_layers_may_be_recomputed() -> None:
    """A layer that runs again in the backward pass finds what it found the first time."""

    class Recomputing(Flow):
        def forward(self, x: Tensor, context: Context | None = None, t0: float | None = None) -> Tensor:
            out = checkpoint(super().forward, x, context, t0, use_reentrant=False)
            assert isinstance(out, Tensor)
            return out

    plain = stack("adams-bashforth", SHAPE)
    again = copy.deepcopy(plain)
    for flow in again.flows:
        flow.__class__ = Recomputing
    x = state()
    for model in (plain, again):
        model(x).pow(3).sum().backward()
    for a, b in zip(plain.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-13)


def test_a_compiled_layer_remembers_too() -> None:
    model, x = stack("adams-bashforth", SHAPE), state()
    expected = model(x)
    for i in range(SHAPE.depth):
        model.flows[i] = torch.compile(model.flows[i], backend="eager")
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-12)


def test_encoder_and_decoder_remember_apart() -> None:
    decoder, x, memory = Decoder(8, 2, 3, "adams-bashforth"), state(), torch.randn(2, 4, 8)
    encoder = Encoder(8, 2, 3, "adams-bashforth")
    expected = encoder(memory), decoder(x, memory)
    assert torch.equal(decoder(x, memory), expected[1]) and torch.equal(encoder(memory), expected[0])


# -------------------------------------------------------------------------------------------------- decoding


def test_a_beam_that_is_reordered_goes_on_as_if_it_had_been_so_from_the_start() -> None:
    model = build("adams-bashforth:steps=2", "language_small", vocabulary=17, width=8, heads=2, depth=3, hidden=16)
    model.eval()
    ids, rows = torch.randint(0, 17, (3, 6)), torch.tensor([2, 0, 2, 1])
    cache = Cache()
    model(ids, cache=cache)
    cache.reorder(rows)
    new = torch.randint(0, 17, (4, 1))
    found = model(new, cache=cache).logits[:, -1]
    whole = model(torch.cat((ids[rows], new), dim=1)).logits[:, -1]
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-11)


def test_a_beam_over_a_decoder_that_remembers() -> None:
    settings = {"vocabulary": 19, "width": 8, "heads": 2, "depth": 3, "hidden": 16, "length": 40}
    model = build("adams-bashforth:independent=1", "translation_small", **settings).eval()
    nn.init.normal_(model.embedding.weight, std=0.7)
    ids = torch.randint(3, 19, (3, 6))
    found = beam_search(model, ids, beam=4, max_length=8)
    assert found == beam_search(model, ids, beam=4, max_length=8, use_cache=False)


# ------------------------------------------------------------------------------------- beside other methods

HISTORIES = {
    "streams": lambda i: HyperConnections(8, 3, i),
    "momentum": lambda i: Momentum(0.5),
    "dense": lambda i: Dense(RungeKutta(EULER), [i]),
    "streams, split": lambda i: LieTrotter(HyperConnections(8, 3, i)),
    "momentum, split": lambda i: LieTrotter(Momentum(0.5)),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_layers_with_a_history_recompute_compile_and_mix(name: str) -> None:
    flows, x = [layer(HISTORIES[name](i)) for i in range(2)], state()
    model = perturbed(Stack(flows, norm=nn.LayerNorm(8)))
    expected = model(x)
    recomputed = Stack([Flow(f.field, Checkpointed(f.solver)) for f in flows], norm=model.norm)  # ty: ignore
    assert torch.equal(recomputed(x), expected)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, rtol=0, atol=1e-12)
    if name != "dense":  # whose last row is made for one state before
        mixed = Stack([layer(RungeKutta(EULER)), *flows, layer(AdamsBashforth())])
        by_hand = mixed.flows[3](Stack(flows)(mixed.flows[0](x)))
        torch.testing.assert_close(mixed(x), by_hand, rtol=0, atol=1e-12)


# -------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: layer(LieTrotter(AdamsBashforth())),
            "a splitting cannot be combined with adams-bashforth: a splitting",
        ),
        (lambda: layer(Strang(AdamsBashforth())), "a splitting cannot be combined with adams-bashforth: a splitting"),
        (lambda: layer(Strang(LieTrotter(AdamsBashforth()))), "a splitting moves one term at a time"),
        (lambda: Increment(AdamsBashforth(), branches()), "Increment takes a whole step as a field"),
        (lambda: Increment(LieTrotter(Momentum(0.5)), branches()), "but momentum remembers the steps before"),
        (
            lambda: FixedSteps(AdamsBashforth())(branches(), 0.0, 1.0, state(), Context()),
            "adams-bashforth remembers earlier steps, and a Flow or a Stack keeps them",
        ),
    ],
)
def test_what_cannot_be_remembered_is_refused(make, sentence: str) -> None:
    with pytest.raises(OdeumError, match=sentence):
        make()


def test_a_solver_that_does_not_pass_the_history_on_is_noticed() -> None:
    class Mine(Solver):
        def __init__(self) -> None:
            super().__init__()
            self.inner = FixedSteps(AdamsBashforth())

        def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
            return self.inner(field, t0, t1, x, context)

    with pytest.raises(OdeumError, match="call it inside of one"):
        Stack([Flow(branches(), Mine())])(state())


def test_a_method_over_increments_of_whole_layers() -> None:
    """f may be the increment of a one-step method: the multistep form of the ODE Transformer."""
    flow, x = layer(AdamsBashforth(), Increment(LieTrotter(), branches())), state()

    def f(x: Tensor) -> Tensor:
        return LieTrotter().step(flow.field.field, 0.0, 1.0, x, Context()) - x  # ty: ignore

    a = x + (f(x) + f(x + f(x))) / 2
    torch.testing.assert_close(Stack([flow], [0, 0])(x), a + 1.5 * f(a) - 0.5 * f(x), rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------- momentum and dense


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("momentum:gamma=0", "sequential"),
        ("momentum:gamma=0,method=euler,steps=2", "parallel:steps=2"),
        ("momentum:gamma=0,method=strang,independent=2", "strang:independent=2"),
        ("momentum:gamma=0,norm=post", "post-norm"),
        ("dense", "sequential"),
        ("dense:method=rk4,independent=2,sharing=cycle", "rk4:independent=2,sharing=cycle"),
        ("dense:norm=post", "post-norm"),
        ("dense:form=macaron,method=euler", "macaron:method=euler"),
    ],
)
@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
def test_to_the_bit_the_plain_stack(spelling: str, plain: str, cross: bool) -> None:
    one, other = beside(spelling, plain, cross=cross)
    x, context = state(), Context(other=Source(memory=torch.randn(2, 3, 8)))
    assert torch.equal(one(x, context), other(x, context))
    for before, after in zip(one.trajectory(x, context), other.trajectory(x, context), strict=True):
        assert torch.equal(before, after)


def test_momentum_by_hand() -> None:
    model, x = stack("momentum:gamma=0.75,method=euler", dataclasses.replace(SHAPE, depth=3)), state()
    assert isinstance(model, Stack)
    y, v = x, torch.zeros_like(x)
    for flow in model.flows:
        v = 0.75 * v + 0.25 * flow.field(0.0, y, Context())  # ty: ignore
        y = y + v
    torch.testing.assert_close(model(x), model.norm(y), rtol=0, atol=1e-12)  # ty: ignore


@pytest.mark.parametrize("spelling", ["momentum:gamma=0.5", "momentum:gamma=0.5,method=euler", "reversible"])
def test_finer_steps_follow_the_equation_that_describe_prints(spelling: str) -> None:
    """With first order: halving the steps halves the distance to where that equation of two states leads."""
    model, x = stack(f"{spelling}{',' if ':' in spelling else ':'}independent=1", SHAPE), state()
    field: Any = model.flows[0].field  # ty: ignore
    turns = 1 if "euler" in spelling else 2

    def speed(pair: Tensor) -> Tensor:
        x, other = pair
        if spelling == "reversible":
            attention, feed_forward = field.terms
            return torch.stack((feed_forward(0.0, other, Context()), attention(0.0, x, Context())))
        return torch.stack((other, turns * math.log(2.0) * (field(0.0, x, Context()) - other)))

    with torch.no_grad():
        pair, h = torch.stack((x, x if spelling == "reversible" else torch.zeros_like(x))), 1 / 32
        for _ in range(32 * SHAPE.depth):  # Kutta's steps, whose error is not seen here
            k1 = speed(pair)
            k2 = speed(pair + h / 2 * k1)
            k3 = speed(pair + h / 2 * k2)
            pair = pair + h / 6 * (k1 + 2 * k2 + 2 * k3 + speed(pair + h * k3))
        exact = model.norm(pair.mean(0) if spelling == "reversible" else pair[0])  # ty: ignore
        errors = []
        for steps in (64, 128):
            set_steps(model, steps)
            errors.append((model(x) - exact).norm().item())
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.1)


def test_dense_averages_all_states_before() -> None:
    model, x = perturbed(stack("dense:method=euler,independent=2,sharing=cycle", SHAPE)), state()
    assert isinstance(model, Stack)
    rows = {}
    for flow in model.flows:
        method = flow.solver.method  # ty: ignore
        rows |= dict(zip(method.layers, method.rows, strict=True))
    states = [x]
    y = x
    for i, (flow, _) in enumerate(model.timed()):
        states.append(y + flow.field(0.0, y, Context()))
        y = sum(a * s for a, s in zip(rows[i], states, strict=True))
    torch.testing.assert_close(model(x), model.norm(y), rtol=0, atol=1e-12)  # ty: ignore
    assert sum(row.numel() for row in rows.values()) == SHAPE.depth * (SHAPE.depth + 3) // 2


@pytest.mark.parametrize("name", ["dense", "yurii", "pcformer", "dense:interval=0.5"])
def test_coefficients_of_a_layer_keep_its_steps(name: str) -> None:
    model, x = stack(name, SHAPE), state()
    before = model(x)
    with pytest.raises(OdeumError, match=r"keep the steps it was built with \(1 per layer\)"):
        set_steps(model, 4)
    set_steps(model, 1)
    assert torch.equal(model(x), before)
    for flow in model.flows:  # ty: ignore
        flow.solver.steps = 4
    with pytest.raises(OdeumError, match="cannot be changed"):
        model(x)


# ------------------------------------------------------------------------------------------ yurii and pcformer


@pytest.mark.parametrize(("rest", "plain"), [("", "sequential"), (",method=euler", "parallel")])
def test_yurii_without_momentum_is_the_plain_stack(rest: str, plain: str) -> None:
    """μ = β = 0, γ = 1 and no norm."""
    one, other = beside(f"yurii:normed=false{rest}", plain)
    for part in one.modules():
        if isinstance(part, Nesterov):
            with torch.no_grad():
                assert part.numbers is not None
                part.numbers[:-1] = -torch.inf
                part.numbers[-1] = math.log(math.e - 1)
    x = state()
    torch.testing.assert_close(one(x), other(x), rtol=0, atol=1e-12)


def test_yurii_under_a_norm_moves_by_one_unit_whatever_gamma_is() -> None:
    """β = 0: x ← x + N(f(x + μ v)); γ changes nothing but by the norm's eps."""
    model, x = stack("yurii", dataclasses.replace(SHAPE, norm_eps=1e-12)), state()
    found = []
    for gamma in (-2.0, 2.0):
        for part in model.modules():
            if isinstance(part, Nesterov) and part.numbers is not None:
                with torch.no_grad():
                    part.numbers[1], part.numbers[2] = -torch.inf, gamma
        found.append(model(x))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-8)


def test_yurii_by_hand() -> None:
    model, x = perturbed(stack("yurii:independent=2,sharing=cycle", SHAPE)), state()
    y, v = x, torch.zeros_like(x)
    for flow, _ in model.timed():  # ty: ignore
        for term, part in zip(flow.field.terms, flow.solver.method.parts, strict=True):
            mu, beta = part.numbers[:2].sigmoid()
            v = part.norm(beta * v + nn.functional.softplus(part.numbers[2]) * term(0.0, y + mu * v, Context()))
            y = y + v
    torch.testing.assert_close(model(x), model.norm(y), rtol=0, atol=1e-12)  # ty: ignore


def test_pcformer_by_hand() -> None:
    """α (1 − α)^(o − i) over the stages, two averages over all that was corrected."""
    model, x = perturbed(stack("pcformer", dataclasses.replace(SHAPE, depth=3))), state()
    y, past = x, [x]
    for i, flow in enumerate(model.flows):  # ty: ignore

        def f(z: Tensor, flow=flow) -> Tensor:
            return flow.field(0.0, z, Context())

        part = flow.solver.method
        k1 = f(y)
        guess = y + part.alpha * (1 - part.alpha) * k1 + part.alpha * f(y + k1)
        states = [*past, part.predicted_norm(guess)]
        here = sum(a * h for a, h in zip(part.predicted[0], states, strict=True))
        past.append(part.corrected_norm(here + f(here)))
        y = sum(c * h for c, h in zip(part.corrected[0], past, strict=True))
        assert part.predicted[0].shape == (i + 2,)
    torch.testing.assert_close(model(x), model.norm(y), rtol=0, atol=1e-12)  # ty: ignore


def test_pcformer_of_the_last_state_alone_is_a_layer_at_the_prediction() -> None:
    model, x = stack("pcformer:independent=1", dataclasses.replace(SHAPE, depth=1)), state()
    flow = model.flows[0]  # ty: ignore
    part = flow.solver.method
    part.predicted_norm = part.corrected_norm = nn.Identity()
    with torch.no_grad():
        for row in (part.predicted[0], part.corrected[0]):
            row.copy_(torch.tensor([0.0, 1.0]))
        k1 = flow.field(0.0, x, Context())
        guess = x + 0.25 * k1 + 0.5 * flow.field(0.0, x + k1, Context())
    plain = stack("sequential", dataclasses.replace(SHAPE, depth=1))
    plain.load_state_dict({n: w for n, w in by_role(model).items() if n in by_role(plain)})
    torch.testing.assert_close(model(x), plain(guess), rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------- all of them

MEMBERS = [
    *("momentum", "momentum:method=euler,steps=2,independent=2", "dense", "dense:independent=2,sharing=cycle"),
    *("hyper", "hyper:dynamic=false,steps=2", "hyper:method=euler,norm=shared,independent=2", "mhc", "mhc:steps=2"),
    *("attention-residuals", "attention-residuals:block=3,independent=2", "mhc:mixing=permutations,streams=3"),
    *("adams-moulton", "adams-moulton:order=4,steps=2,independent=2"),
    *("yurii", "yurii:normed=false,method=euler,independent=2"),
    *("pcformer", "pcformer:method=rk4,independent=2,sharing=cycle"),
]


@pytest.mark.parametrize("spelling", MEMBERS)
def test_checkpointed_is_the_same(spelling: str) -> None:
    shape = dataclasses.replace(SHAPE, dropout=0.2, stochastic_depth=0.1)
    one = perturbed(stack(spelling, shape))
    again = stack(f"{spelling}{',' if ':' in spelling else ':'}gradient=checkpointed", shape)
    again.load_state_dict(by_role(one))
    x = state()
    for model in (one, again):
        torch.manual_seed(3)
        model(x).pow(3).sum().backward()
    found = {name: p.grad for name, p in again.named_parameters()}
    for name, p in one.named_parameters():
        other = found[name.replace("solver.", "solver.solver.", 1)]
        torch.testing.assert_close(p.grad, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spelling", MEMBERS)
def test_decoding_with_a_cache_is_recomputing_with_any_coefficients(spelling: str) -> None:
    model = build(spelling, "language_small", vocabulary=17, width=8, heads=2, depth=4, hidden=16).eval()
    perturbed(model)
    ids, cache = torch.randint(0, 17, (3, 7)), Cache()
    whole = model(ids).logits
    for start, end in ((0, 4), (4, 5), (5, 7)):
        found = model(ids[:, start:end], cache=cache).logits
        torch.testing.assert_close(found, whole[:, start:end], rtol=0, atol=1e-11)


@pytest.mark.parametrize("spelling", MEMBERS)
def test_coefficients_are_saved_and_loaded_by_role(spelling: str) -> None:
    one, other, x = perturbed(stack(spelling, SHAPE)), stack(spelling, SHAPE), state()
    saved = by_role(one)
    assert not any(step in name.split(".") for name in saved for step in ("solver", "method", "flows"))
    other.load_state_dict(saved)
    assert torch.equal(one(x), other(x))
