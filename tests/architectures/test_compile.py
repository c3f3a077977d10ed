"""What a user does to a torch module works: compile, autocast, export, other devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from odeum import Decoder, Encoder
from odeum.registry.names import ARCHITECTURES

FIXED = [
    "sequential",
    "post-norm",
    "parallel:independent=1",
    "rk4",
    "macaron",
    "strang-midpoint",
    "ode-transformer",
    "sandwich",
    "rk4:gradient=checkpointed",
    "transevolve",
    "adams-bashforth:independent=1",
    "adams-bashforth:gradient=checkpointed",
    "adams-bashforth:order=3,steps=2",
    "leapfrog:gradient=checkpointed",
    "momentum:gradient=checkpointed",
    "dense:independent=1",
    "hyper:gradient=checkpointed",
    "mhc:independent=1",
    "attention-residuals:block=2,gradient=checkpointed",
    "looped:repeats=2,through=1,inject=stable",
]


def encoder(spelling: str, depth: int = 2, **shape) -> Encoder:
    return Encoder(16, 2, depth, spelling, hidden=32, **shape)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def padding_of(x: Tensor) -> Tensor:
    mask = torch.zeros(x.shape[:2], dtype=torch.bool)
    mask[0, -2:] = True
    return mask


# One of a kind by default: without steps of its own, with stages and recomputed, remembering, looped, evolved.
DEFAULT = (
    "parallel:independent=1",
    "rk4:gradient=checkpointed",
    "transevolve",
    "dense:independent=1",
    FIXED[-1],
)


def slow(spelling: str) -> Any:
    return pytest.param(spelling, marks=pytest.mark.slow)


EVERY = dict.fromkeys([*FIXED, *ARCHITECTURES])
"""besides `continuous`, whose steps depend on the data, as do those of `looped` with `random` or `exit`"""
del EVERY["continuous"]


@pytest.mark.parametrize("spelling", [name if name in DEFAULT else slow(name) for name in EVERY])
def test_fixed_steps_compile_into_one_graph(spelling: str) -> None:
    model, x = encoder(spelling), torch.randn(3, 6, 16)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    words = {"src_key_padding_mask": padding_of(x), "is_causal": True}
    found = gradients(model, compiled(x, **words))
    for one, other in zip(found, gradients(model, model(x, **words)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def gradients(model: nn.Module, out: Tensor) -> list[Tensor]:
    """The result, and the gradient of a function of it by every weight."""
    return [out.detach(), *torch.autograd.grad(out.pow(3).sum(), list(model.parameters()))]


@pytest.mark.parametrize(
    "spelling", ["strang:gradient=checkpointed", "adams-bashforth", *map(slow, ("sequential", "rk4"))]
)
def test_dropout_compiles_into_one_graph(spelling: str) -> None:
    depth = 2 if spelling == "adams-bashforth" else 1  # which looks back to the layer before
    model, x = encoder(spelling, depth, dropout=0.5, stochastic_depth=0.5), torch.randn(3, 6, 16)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert compiled(x).isfinite().all()
    assert not torch.equal(compiled(x), compiled(x))


@pytest.mark.parametrize(
    "spelling", ["rk4", "ode-transformer", "strang:gradient=checkpointed", "rk4:gradient=checkpointed"]
)
@pytest.mark.slow
def test_a_compiled_step_draws_what_a_step_draws(spelling: str) -> None:
    """The same numbers from the same seed, in the gradient too: once a step, and found again by its other stages."""
    model, x = encoder(spelling, stochastic_depth=0.5), torch.randn(8, 6, 16)
    found = []
    for run in (torch.compile(model, fullgraph=True, backend="aot_eager"), model):
        torch.manual_seed(0)
        found.append(gradients(model, run(x)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_decoder_compiles_into_one_graph() -> None:
    model = Decoder(16, 2, 1, "rk4")
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    expected = model(x, memory, tgt_is_causal=True)
    torch.testing.assert_close(compiled(x, memory, tgt_is_causal=True), expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ["parallel", "rk4", "adams-bashforth"])
def test_inductor(spelling: str) -> None:
    model, x = encoder(spelling), torch.randn(3, 6, 16)
    compiled = torch.compile(model, fullgraph=True)
    out = compiled(x, is_causal=True)
    torch.testing.assert_close(out, model(x, is_causal=True), rtol=0, atol=1e-4)
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("spelling", [*FIXED, "continuous", "continuous:gradient=adjoint", "rk4:gradient=adjoint"])
def test_autocast(spelling: str) -> None:
    """Products in bfloat16, the state in float32; the result is near to that in float32."""
    model, x = encoder(spelling), torch.randn(3, 6, 16)
    exact = model(x, is_causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x, is_causal=True)
        out.float().square().sum().backward()
    assert out.dtype == torch.float32
    assert (out - exact).abs().max() < 0.15
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("spelling", [*FIXED, "continuous"])
def test_whole_models_in_another_dtype(spelling: str, dtype: torch.dtype) -> None:
    model = encoder(spelling).to(dtype)
    if spelling == "continuous" and dtype == torch.bfloat16:
        pytest.skip("its tolerance is below what bfloat16 can tell apart")
    out = model(torch.randn(3, 6, 16, dtype=dtype), is_causal=True)
    assert out.dtype == dtype and out.isfinite().all()


class Masked(nn.Module):
    """The call that is exported: positional tensors only."""

    def __init__(self, model: Encoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.model(x, src_key_padding_mask=padding)


# Whole models with stages, and evolved ones, are exported in test_graphs.py and test_transevolve_models.py.
@pytest.mark.parametrize(
    "spelling", ["parallel:independent=1", "adams-bashforth", *map(slow, ("sequential", "rk4", "transevolve"))]
)
def test_export_with_dynamic_batch_and_length(spelling: str) -> None:
    model = Masked(encoder(spelling)).eval()
    x = torch.randn(3, 6, 16)
    shapes = {0: Dim("batch"), 1: Dim("length")}
    program = torch.export.export(model, (x, padding_of(x)), dynamic_shapes=(shapes, shapes))
    for batch, length in ((3, 6), (2, 11), (5, 4)):
        x = torch.randn(batch, length, 16)
        expected = model(x, padding_of(x))
        torch.testing.assert_close(program.module()(x, padding_of(x)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("spelling", ["parallel"])
def test_export_of_a_causal_model(spelling: str) -> None:
    model, x = encoder(spelling).eval(), torch.randn(3, 6, 16)
    shapes = {0: Dim("batch"), 1: Dim("length")}
    program = torch.export.export(model, (x,), {"is_causal": True}, dynamic_shapes={"src": shapes, "is_causal": None})
    other = torch.randn(2, 9, 16)
    torch.testing.assert_close(program.module()(other, is_causal=True), model(other, is_causal=True), rtol=0, atol=1e-5)


@pytest.mark.parametrize("spelling", [*FIXED, "continuous"])
def test_no_tensor_is_made_on_the_wrong_device(spelling: str) -> None:
    """The meta device computes shapes only; a tensor made elsewhere would be refused."""
    if spelling == "continuous":
        pytest.skip("its steps depend on values")
    with torch.device("meta"):
        model = encoder(spelling)
    x = torch.empty(3, 6, 16, device="meta")
    padding = torch.empty(3, 6, dtype=torch.bool, device="meta")
    assert model(x, src_key_padding_mask=padding, is_causal=True).shape == (3, 6, 16)
