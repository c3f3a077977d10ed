"""What a method remembers lives for one pass and goes from layer to layer."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from odeum import Decoder, Encoder, build, set_solver, set_steps
from odeum.architectures import stack
from odeum.decode import beam_search
from odeum.fields import Cache, Context, FeedForward, Field, PreNorm, SelfAttention, Sum
from odeum.flow import Flow, Stack
from odeum.integrators import (
    EULER,
    AdamsBashforth,
    FixedSteps,
    Method,
    RungeKutta,
)
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
