"""A linear map by oneDNN: torch's values and gradients, and out of the way where somebody looks on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from closeness import close
from onednn import EVERYWHERE, without
from test_relu_network import Called
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from odeum.fields import Context
from odeum.fields.attention import SelfAttention
from odeum.fields.feedforward import FeedForward
from odeum.kernels.linear import linear, linear_map
from odeum.kernels.matmul import backend_name

pytestmark = EVERYWHERE


@pytest.mark.parametrize("shape", [(12, 6), (2, 6, 6), (2, 3, 2, 6)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_a_map_has_torchs_values_and_gradients(
    shape: tuple[int, ...], bias: bool, onednn_calls: list[tuple[int, ...]]
) -> None:
    module, x = nn.Linear(6, 10, bias=bias), torch.randn(shape, requires_grad=True)
    found = []
    for compute in (lambda: linear(module, x), lambda: module(x)):
        out = compute()
        weight = torch.linspace(-1.0, 1.0, out.numel()).view_as(out)
        found.append([out, *torch.autograd.grad((weight * out).sum(), [x, *module.parameters()])])
    for ours, right in zip(*found, strict=True):
        close(ours, right, 1e-5)
        assert ours.is_contiguous()  # as code that flattens gradients takes for granted
    assert len(onednn_calls) == 3
    before = len(onednn_calls)
    with torch.no_grad():
        close(linear(module, x), module(x), 1e-5)
    assert len(onednn_calls) == before + 1


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    module, x = nn.Linear(6, 10), torch.randn(12, 6)
    module.weight.requires_grad_(False)
    linear(module, x).sum().backward()
    assert module.weight.grad is None and x.grad is None
    close(module.bias.grad, torch.full((10,), 12.0), 1e-6)


def test_the_gradient_can_be_differentiated(onednn_calls: list[tuple[int, ...]]) -> None:
    """A map that acts twice, so that its second input comes from its weight."""
    module, x = nn.Linear(6, 6), torch.randn(8, 6, requires_grad=True)
    found = []
    for apply in (lambda y: linear(module, y), module):
        slope = torch.autograd.grad(apply(apply(x).tanh()).square().sum(), x, create_graph=True)[0]
        found.append(torch.autograd.grad(slope.square().sum(), [x, module.weight]))
    assert onednn_calls
    for ours, right in zip(*found, strict=True):
        close(ours, right, 1e-4)


def test_gradients_in_batches() -> None:
    module, x, directions = nn.Linear(6, 10), torch.randn(8, 6, requires_grad=True), torch.randn(3, 8, 10)
    ours, right = (
        torch.autograd.grad(out, x, directions, is_grads_batched=True)[0] for out in (linear(module, x), module(x))
    )
    close(ours, right, 1e-5)


def test_a_weight_that_is_changed_before_its_gradient_is_told() -> None:
    module = nn.Linear(6, 10)
    out = linear(module, torch.randn(8, 6, requires_grad=True)).sum()
    with torch.no_grad():
        module.weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_made_again_it_ends_before_its_product(onednn_calls: list[tuple[int, ...]]) -> None:
    module, x = nn.Linear(6, 10), torch.randn(8, 6, requires_grad=True)
    checkpoint(lambda y: linear(module, y), x, use_reentrant=False).sum().backward()
    assert len(onednn_calls) == 3  # forward and two gradients
    close(x.grad, module.weight.sum(0).expand(8, 6), 1e-5)


def counted(module: nn.Linear, x: Tensor) -> None:
    with FlopCounterMode(display=False) as counter:
        linear(module, x.requires_grad_()).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 8 * 6 * 10


def looked_at(module: nn.Linear, x: Tensor) -> None:
    with Called() as mode:
        linear(module, x)
    assert torch.ops.aten.addmm.default in mode.seen


def hooked(module: nn.Linear, x: Tensor) -> None:
    seen: list[Tensor] = []
    module.register_forward_hook(lambda module, given, out: seen.append(out))
    linear(module, x)
    assert seen


def hooked_backward(module: nn.Linear, x: Tensor) -> None:
    seen: list[object] = []
    module.register_full_backward_hook(lambda *given: seen.append(given))
    linear(module, x.requires_grad_()).sum().backward()
    assert seen


def parametrized(module: nn.Linear, x: Tensor) -> None:
    parametrizations.weight_norm(module)
    close(linear(module, x), module(x), 0)


def patched(module: nn.Linear, x: Tensor) -> None:
    module.forward = lambda input: input * 2  # ty: ignore[invalid-assignment]
    close(linear(module, x), x * 2, 0)


def another_kind(module: nn.Linear, x: Tensor) -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    other = Doubled(6, 10)
    close(linear(other, x), other(x), 0)


def lent(module: nn.Linear, x: Tensor) -> None:
    """Other weights in the place of its own."""

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = module

        def forward(self, x: Tensor) -> Tensor:
            return linear(self.part, x)

    weights = {"part.weight": torch.ones(10, 6, requires_grad=True), "part.bias": torch.zeros(10)}
    torch.func.functional_call(Whole(), weights, (x,)).sum().backward()
    assert module.weight.grad is None
    close(weights["part.weight"].grad, x.sum(0).expand(10, 6), 1e-5)


def mapped(module: nn.Linear, x: Tensor) -> None:
    close(torch.func.vmap(lambda y: linear(module, y.unsqueeze(0)))(x).squeeze(1), module(x), 1e-6)


def pushed_forward(module: nn.Linear, x: Tensor) -> None:
    step = torch.randn_like(x)
    close(torch.func.jvp(lambda y: linear(module, y), (x,), (step,))[1], step @ module.weight.T, 1e-6)


def cast(module: nn.Linear, x: Tensor) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(module, x).dtype == torch.bfloat16


def double(module: nn.Linear, x: Tensor) -> None:
    close(linear(module.double(), x.double()), module(x.double()), 0)


def one_row(module: nn.Linear, x: Tensor) -> None:
    for row in (x[0], x[:1]):
        close(linear(module, row), module(row), 0)


def less_precise_in_new_words(module: nn.Linear, x: Tensor) -> None:
    """Which the older question cannot be asked after."""
    code = """
import torch
from torch import nn
from odeum.kernels import matmul
from odeum.kernels import linear
matmul.faster_here, matmul.LEAST_PRODUCT, linear.LEAST_MAP = (lambda: True), 1, 1
torch.backends.cuda.matmul.fp32_precision = "tf32"
module, x = nn.Linear(6, 10), torch.randn(8, 6)
assert matmul.matmul_backend(1, x) is matmul.OneDnnBackend
torch.testing.assert_close(linear.linear(module, x), module(x))
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
assert matmul.matmul_backend(1, x) is matmul.TorchBackend
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def sparse(module: nn.Linear, x: Tensor) -> None:
    module.weight = nn.Parameter(module.weight.detach().to_sparse_csr(), requires_grad=False)
    with torch.no_grad():
        close(linear(module, x), module(x), 0)


def without_fit(module: nn.Linear, x: Tensor) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear(module, x[:, :5])
    close(linear_map(x, module.weight, torch.ones(1)), x @ module.weight.T + 1, 1e-5)


def symbolic(module: nn.Linear, x: Tensor) -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fields = nn.ModuleList(FeedForward(6, activation=name) for name in ("gelu", "relu", "swiglu"))

        def forward(self, x: Tensor) -> Tensor:
            for field in self.fields:
                x = field(0.0, x, Context())
            return x

    whole = Whole()
    graph = torch.fx.symbolic_trace(whole)
    torch.backends.mkldnn.enabled = False  # ty: ignore[invalid-assignment]
    close(graph(x), whole(x), 1e-5)
    torch.backends.mkldnn.enabled = True  # ty: ignore[invalid-assignment]


def less_precise(module: nn.Linear, x: Tensor) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        close(linear(module, x), module(x), 0)
    finally:
        torch.set_float32_matmul_precision("highest")


def switched_off(module: nn.Linear, x: Tensor) -> None:
    close(without(lambda: linear(module, x)), module(x), 0)
    assert without(backend_name) == "torch" and backend_name() == "oneDNN"


WISHES = (counted, looked_at, hooked, hooked_backward, parametrized, patched, another_kind, lent, mapped)
MORE_WISHES = (pushed_forward, cast, double, one_row, less_precise, switched_off)
RARE_WISHES = (less_precise_in_new_words, sparse, without_fit, symbolic)


@pytest.mark.parametrize("wish", WISHES + MORE_WISHES + RARE_WISHES)
def test_it_steps_aside(wish: Callable[[nn.Linear, Tensor], None], onednn_calls: list[tuple[int, ...]]) -> None:
    wish(nn.Linear(6, 10), torch.randn(8, 6))
    assert not onednn_calls


def test_a_compiled_map_is_torchs_own(onednn_calls: list[tuple[int, ...]]) -> None:
    module = nn.Linear(6, 10)
    graph = torch.export.export(
        nn.Sequential(SelfAttentionOnly()), (torch.randn(2, 5, 8),), dynamic_shapes=({1: torch.export.Dim("n")},)
    )
    assert torch.ops.mkldnn._linear_pointwise.default not in {node.target for node in graph.graph.nodes}
    compiled = torch.compile(lambda x: linear(module, x), backend="eager", fullgraph=True)
    assert compiled(torch.randn(8, 6)).shape == (8, 10)
    assert not onednn_calls


class SelfAttentionOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.field = SelfAttention(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.field(0.0, x, Context())
