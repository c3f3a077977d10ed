"""What a method remembers lives for one pass and goes from layer to layer."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from covering import every_second
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from odeum import Decoder, Encoder, build, set_solver, set_steps
from odeum.architectures import stack
from odeum.decode import beam_search
from odeum.errors import OdeumError
from odeum.fields import Cache, Context, FeedForward, Field, Increment, PreNorm, SelfAttention, Sum
from odeum.flow import Flow, Stack
from odeum.integrators import (
    EULER,
    AdamsBashforth,
    Checkpointed,
    FixedSteps,
    LieTrotter,
    Method,
    RungeKutta,
    Solver,
    Strang,
)
from odeum.integrators.base import get_carry
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=4, hidden=16)


def layer(method: Method, field: Field | None = None, duration: float = 1.0) -> Flow:
    return Flow(field or branches(), FixedSteps(method), 0.0, duration)


def branches() -> Sum:
    return Sum(PreNorm(nn.LayerNorm(8), SelfAttention(8, 2)), PreNorm(nn.LayerNorm(8), FeedForward(8, 16)))


def state() -> Tensor:
    return torch.randn(2, 5, 8)


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


# Methods that remember, written as a user would: streams, momentum, dense means; what cannot be kept is refused.


# ---------------------------------------------------------------- what else remembers fits the same two hooks


class Streams(Method):
    """Hyper-connections as they are at the start: read stream i, add to all of them; their sum goes on."""

    history = "streams"

    def __init__(self, count: int, read: int) -> None:
        super().__init__()
        self.count = count
        self.read = nn.Parameter(torch.eye(count)[read % count])
        self.write = nn.Parameter(torch.ones(count))
        self.keep = nn.Parameter(torch.eye(count))

    def begin(self, x: Tensor, context: Context) -> Tensor:
        return x.unsqueeze(0).expand(self.count, *x.shape)

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        f = field(t, torch.einsum("n,n...->...", self.read, x), context)
        return torch.einsum("mn,n...->m...", self.keep, x) + dt * torch.einsum("n,...->n...", self.write, f)

    def finish(self, x: Tensor, context: Context) -> Tensor:
        return x.mean(0)


class Momentum(Method):
    """v ← γ v + (1 − γ) f(x);  x ← x + v (Sander et al. 2021)."""

    history = "momentum"

    def __init__(self, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "momentum").state = torch.zeros_like(x)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "momentum")
        carry.state = self.gamma * carry.state + (1 - self.gamma) * field(t, x, context)
        return x + dt * carry.state


class Dense(Method):
    """A weighted mean of all states so far, one number each (DenseFormer)."""

    history = "dense"

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.eye(depth + 2)[-1])

    def begin(self, x: Tensor, context: Context) -> Tensor:
        get_carry(context, "dense").state = (x,)
        return x

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
        carry = get_carry(context, "dense")
        states = (*carry.state, x + dt * field(t, x, context))
        carry.state = states
        return torch.einsum("n,n...->...", self.row, torch.stack(states))


def with_methods(fields: list[Sum], methods: list[Method]) -> Stack:
    return Stack([layer(m, f) for f, m in zip(fields, methods, strict=True)], norm=nn.LayerNorm(8))


MEMBERS = {
    "streams": lambda i: Streams(3, i),
    "momentum": lambda i: Momentum(0.0),
    "dense": lambda i: Dense(i),
    "streams, split": lambda i: LieTrotter(Streams(3, i)),
    "momentum, split": lambda i: LieTrotter(Momentum(0.0)),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_members_of_the_family_start_as_the_plain_stack(name: str) -> None:
    fields, x = [branches() for _ in range(4)], state()
    plain = with_methods(fields, [LieTrotter() if "split" in name else RungeKutta(EULER)] * 4)
    ours = with_methods(fields, [MEMBERS[name](i) for i in range(4)])
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=1e-12)
    for one, other in zip(ours.trajectory(x), plain.trajectory(x), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)  # streams are read off on the way
    ours(x).pow(3).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ours.parameters())


@pytest.mark.parametrize("name", every_second(MEMBERS, turn=1))
def test_members_recompute_compile_and_mix(name: str) -> None:
    fields, x = [branches() for _ in range(2)], state()
    methods = [MEMBERS[name](i) for i in range(2)]
    model = with_methods(fields, methods)
    with torch.no_grad():
        for method in methods:
            for weight in method.parameters():
                weight.add_(torch.randn_like(weight) / 10)
    expected = model(x)
    recomputed = Stack([Flow(f.field, Checkpointed(f.solver)) for f in model.flows], norm=model.norm)
    assert torch.equal(recomputed(x), expected)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, rtol=0, atol=1e-12)
    if name != "dense":  # whose last row is made for one state before
        mixed = Stack([layer(RungeKutta(EULER)), *model.flows, layer(AdamsBashforth())])
        by_hand = mixed.flows[3](Stack(list(model.flows))(mixed.flows[0](x)))
        torch.testing.assert_close(mixed(x), by_hand, rtol=0, atol=1e-12)


# -------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: layer(LieTrotter(AdamsBashforth())), "a splitting does not go with adams-bashforth: a splitting"),
        (lambda: layer(Strang(AdamsBashforth())), "a splitting does not go with adams-bashforth: a splitting"),
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
