"""The ReLU feed-forward as one node of the graph: the same function and gradients, and out of the way where asked."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from closeness import close
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from odeum.fields import Context
from odeum.fields.feedforward import FeedForward
from odeum.kernels import relu_network


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What was answered to the question whether the strips suit."""
    answers: list[bool] = []
    ask = relu_network.wants_plain_gradient

    def asked(*things: object) -> bool:
        answers.append(ask(*things))  # ty: ignore[invalid-argument-type]
        return answers[-1]

    monkeypatch.setattr("odeum.fields.feedforward.wants_plain_gradient", asked)
    return answers


def network() -> FeedForward:
    torch.manual_seed(0)
    return FeedForward(6, 10, activation="relu").double()


def plain(field: FeedForward, x: Tensor) -> Tensor:
    return field.down(field.up(x).relu())


def act(field: FeedForward, x: Tensor) -> Tensor:
    return field(0.0, x, Context())


@pytest.mark.parametrize("shape", [(6,), (0, 3, 6), (2, 1, 6), (2, 3, 6), (4, 6), (2, 9, 6)], ids=str)
def test_outputs_and_gradients_are_those_of_the_formula(
    shape: tuple[int, ...], used: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relu_network, "STRIP", 4)
    field, x = network(), torch.randn(shape, dtype=torch.float64, requires_grad=True)
    found = []
    for compute in (act, plain):
        out = compute(field, x)
        weight = torch.linspace(-1.0, 1.0, out.numel(), dtype=torch.float64).view_as(out)
        found.append([out, *torch.autograd.grad((weight * out).sum(), [x, *field.parameters()])])
    assert used == [True]
    for ours, right in zip(*found, strict=True):
        torch.testing.assert_close(ours, right, rtol=1e-12, atol=1e-12)


def test_the_gradient_can_be_differentiated(used: list[bool]) -> None:
    field, x = network(), torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    found = []
    for compute in (act, plain):
        slope = torch.autograd.grad(compute(field, x).square().sum(), x, create_graph=True)[0]
        found.append(torch.autograd.grad(slope.square().sum(), [x, field.up.weight, field.down.weight]))
    assert used == [True]
    for ours, right in zip(*found, strict=True):
        close(ours, right, 1e-12)


class Called(TorchDispatchMode):
    """Which operations were called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_made_again_it_ends_before_the_last_product(used: list[bool]) -> None:
    """All that the gradient needs is there by then."""
    field, x = network(), torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    right = torch.autograd.grad(act(field, x).square().sum(), [x, *field.parameters()])
    with Called() as calls:
        checkpoint(lambda y: act(field, y), x, use_reentrant=False).square().sum().backward()
    assert used == [True, True, True]
    assert calls.seen.count(torch.ops.aten.addmm.default) == 2  # the first map, twice
    assert calls.seen.count(torch.ops.aten.addmm.out) == 1
    for tensor, gradient in zip([x, *field.parameters()], right, strict=True):
        close(tensor.grad, gradient, 1e-12)


def test_frozen_weights_get_no_gradient(used: list[bool]) -> None:
    field, x = network(), torch.randn(2, 3, 6, dtype=torch.float64)
    field.up.requires_grad_(False)
    act(field, x).sum().backward()
    assert used == [True]
    assert field.up.weight.grad is None
    close(field.down.weight.grad, field.up(x).relu().sum((0, 1)).expand(6, -1), 1e-12)


def hooked(field: FeedForward, x: Tensor) -> None:
    seen: list[Tensor] = []
    field.up.register_forward_hook(lambda module, inputs, output: seen.append(output))
    act(field, x)
    assert seen


def hooked_everywhere(field: FeedForward, x: Tensor) -> None:
    seen: list[nn.Module] = []
    with nn.modules.module.register_module_forward_hook(lambda module, inputs, output: seen.append(module)):
        act(field, x)
    assert field.up in seen


def counted(field: FeedForward, x: Tensor) -> None:
    with FlopCounterMode(display=False) as counter:
        act(field, x.requires_grad_()).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * (2 * 6 * 6 * 10)  # forward, input and weights; 6 rows through 2 maps


def replaced(field: FeedForward, x: Tensor) -> None:
    field.down = nn.Sequential(field.down, nn.Linear(6, 6).double())  # as an adapter would
    assert act(field, x).shape == x.shape


def mapped(field: FeedForward, x: Tensor) -> None:
    close(torch.func.vmap(lambda y: act(field, y))(x.unsqueeze(1)).squeeze(1), plain(field, x), 1e-12)


def pushed_forward(field: FeedForward, x: Tensor) -> None:
    step = torch.randn_like(x)
    _, ours = torch.func.jvp(lambda y: act(field, y), (x,), (step,))
    _, right = torch.func.jvp(lambda y: plain(field, y), (x,), (step,))
    close(ours, right, 1e-12)


def traced(field: FeedForward, x: Tensor) -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = field

        def forward(self, x: Tensor) -> Tensor:
            return act(self.field, x)

    torch.jit.save(torch.jit.trace(Whole(), x), io.BytesIO())


def cast(field: FeedForward, x: Tensor) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert act(field.float(), x.float()).dtype == torch.bfloat16


@pytest.mark.parametrize("wish", [hooked, hooked_everywhere, counted, replaced, mapped, pushed_forward, traced, cast])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_steps_aside(wish: Callable[[FeedForward, Tensor], None], used: list[bool]) -> None:
    wish(network(), torch.randn(2, 3, 6, dtype=torch.float64))
    assert used and not any(used)


def test_without_a_gradient_a_relu_overwrites_only_what_nobody_saw() -> None:
    field, x = FeedForward(8, activation="relu"), torch.randn(2, 5, 8)
    plain = field.down(field.up(x).relu())
    seen: list[Tensor] = []
    with torch.no_grad():
        torch.testing.assert_close(field(0.0, x, Context()), plain, rtol=0, atol=0)
        hook = field.up.register_forward_hook(lambda module, given, out: seen.append(out))
        torch.testing.assert_close(field(0.0, x, Context()), plain, rtol=0, atol=0)
        hook.remove()
        assert (seen[0] < 0).any()
        kept = torch.randn(2, 5, 32)
        before = kept.clone()
        field.up = nn.Identity()  # what comes out of it is its input, and somebody's
        field(0.0, kept, Context())
    assert torch.equal(kept, before)


def test_a_sparse_second_map_is_called(used: list[bool]) -> None:
    """A pruned weight has no strides to look at."""
    field, x = network(), torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    field.down.weight = nn.Parameter(field.down.weight.detach().to_sparse_csr(), requires_grad=False)
    close(act(field, x), plain(field, x), 0)
    assert used == [False]
