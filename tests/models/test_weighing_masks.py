"""Floating masks are added to the scores (ALiBi, a learned relative bias), everywhere alike and never looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from covering import every_second
from test_masks import FIXED, LENGTH, WIDTH, decoder, encoder, state
from test_peers import torch_encoder
from torch import Tensor, nn
from torch.export import Dim

from odeum import Encoder
from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Cache, Context, SelfAttention, Source
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

EVOLVED = ["transevolve:attention=shared", "transevolve:attention=fused"]


def alibi(heads: int, queries: int, keys: int, batch: int = 2) -> Tensor:
    """−slope · distance, a slope a head (Press et al. 2022), as nn.MultiheadAttention takes it."""
    distance = (torch.arange(queries)[:, None] - torch.arange(keys)).abs()
    slopes = 2.0 ** -torch.arange(1, heads + 1, dtype=torch.get_default_dtype())
    return (-slopes[:, None, None] * distance).repeat(batch, 1, 1)


@pytest.mark.parametrize("spelling", every_second(FIXED, turn=1))
def test_a_mask_that_weighs_weighs(spelling: str) -> None:
    model, x = encoder(spelling), state()
    bare, weighed = model(x), model(x, mask=alibi(2, LENGTH, LENGTH))
    assert (bare - weighed).abs().max() > 1e-5
    constant = model(x, mask=torch.full((LENGTH, LENGTH), 0.7))
    if spelling == "moda":  # its softmax also has keys of earlier layers, which a mask of positions does not weigh
        assert (bare - constant).abs().max() > 1e-5
    else:
        torch.testing.assert_close(constant, bare, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spelling", every_second(FIXED))
def test_minus_infinity_is_a_boolean(spelling: str) -> None:
    model, x, memory = decoder(spelling), state(), state(length=5)
    hide, padding = torch.rand(LENGTH, 5) < 0.3, torch.tensor([[False] * 5, [False, False, False, True, True]])
    hide[:, 0] = False
    expected = model(x, memory, memory_mask=hide, memory_key_padding_mask=padding, tgt_is_causal=True)
    floats = [torch.zeros(m.shape).masked_fill(m, -torch.inf) for m in (hide, padding)]
    order = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    for look, pad in ((hide, floats[1]), (floats[0], padding), tuple(floats)):
        found = model(x, memory, tgt_mask=order, memory_mask=look, memory_key_padding_mask=pad)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["mask", "mask and booleans", "mask and floats", "causal mask"])
@pytest.mark.parametrize("placement", ["sequential", "post-norm"])
def test_torchs_encoder_and_the_gradient_of_a_learned_bias(placement: str, kind: str) -> None:
    theirs, ours = torch_encoder(placement, "relu")
    torch.manual_seed(1)
    x, padding = torch.randn(3, 5, 8), None
    if "and" in kind:
        padding = torch.arange(5) >= torch.tensor([[5], [3], [1]])
    if "floats" in kind:
        assert padding is not None
        padding = torch.randn(3, 5).masked_fill(padding, -torch.inf)
    found = []
    for model in (theirs, ours):
        mask = alibi(2, 5, 5, 3).requires_grad_()
        words, full = {}, mask
        if "causal" in kind:
            full = mask + nn.Transformer.generate_square_subsequent_mask(5)
            words = {"is_causal": True} if model is ours else {}
        out = model(x, mask=mask if words else full, src_key_padding_mask=padding, **words)
        found.append((out.detach(), *torch.autograd.grad(out.pow(3).sum(), mask)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a, rtol=0, atol=1e-10)
    assert found[0][1].abs().max() > 1e-2


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_the_forms_of_transevolve_agree(causal: bool, learned: bool) -> None:
    shape = Shape(width=WIDTH, heads=2, depth=3)
    shared, fused = (stack(spelling, shape) for spelling in EVOLVED)
    fused.load_state_dict(shared.state_dict())
    x, found = state(), []
    for model in (shared, fused):
        mask = alibi(2, LENGTH, LENGTH, 2).view(2, 2, LENGTH, LENGTH).requires_grad_(learned)
        hidden = torch.zeros(2, 1, 1, LENGTH, dtype=torch.bool)
        hidden[1, ..., -2:] = True
        out = model(x, Context(own=Source(mask=mask.masked_fill(hidden, -torch.inf), causal=causal)))
        inputs = [*([mask] if learned else []), *model.parameters()]
        found.append((out.detach(), *torch.autograd.grad(out.pow(3).sum(), inputs)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("spelling", ["sequential", "rk4", *EVOLVED])
def test_one_position_at_a_time_sees_the_same_bias(spelling: str) -> None:
    model, x = stack(spelling, Shape(width=WIDTH, heads=2, depth=3)).eval(), state()
    bias = alibi(2, LENGTH, LENGTH, 1)[None]
    hidden = torch.zeros(2, 1, 1, LENGTH, dtype=torch.bool)
    hidden[1, ..., 0] = True  # padding on the left: the first query sees nothing at all
    bias = bias.masked_fill(hidden, -torch.inf)
    whole = model(x, Context(own=Source(mask=bias, causal=True)))
    cache, parts = Cache(), []
    for i in range(LENGTH):
        cache.begin()
        own = Source(mask=bias[:, :, i : i + 1, : i + 1], causal=True, cache=cache)
        parts.append(model(x[:, i : i + 1], Context(own=own)))
        cache.advance(1)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-11)


def test_the_linear_form_takes_a_bias_of_keys_and_refuses_one_of_pairs() -> None:
    model = stack("transevolve:attention=linear,features=512", Shape(width=WIDTH, heads=2, depth=2))
    x, keys = state(), torch.randn(2, 1, 1, LENGTH)
    hidden = torch.zeros(2, 1, 1, LENGTH, dtype=torch.bool)
    hidden[0, ..., 3:] = True
    for causal in (False, True):
        boolean = model(x, Context(own=Source(mask=~hidden, causal=causal)))
        floating = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)
        torch.testing.assert_close(model(x, Context(own=Source(mask=floating, causal=causal))), boolean)
    exact = stack("transevolve:attention=fused", Shape(width=WIDTH, heads=2, depth=2))
    exact.load_state_dict(model.state_dict(), strict=False)
    bare, near, right = (m(x, Context(own=Source(mask=b))) for m, b in ((exact, None), (model, keys), (exact, keys)))
    assert (near - right).abs().mean() < (near - bare).abs().mean() / 2
    with pytest.raises(OdeumError, match="supports masks over keys only"):
        model(x, Context(own=Source(mask=alibi(2, LENGTH, LENGTH, 1)[None])))


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("spelling", ["sequential", "post-norm", "rk4", *EVOLVED])
def test_a_query_that_sees_nothing_is_finite_forward_and_backward(
    spelling: str, dtype: torch.dtype, learned: bool
) -> None:
    model, x = encoder(spelling).to(dtype), state().to(dtype).requires_grad_()
    mask = torch.randn(LENGTH, LENGTH)
    mask[2] = -torch.inf
    mask.requires_grad_(learned)
    out = model(x, mask=mask)
    out.square().sum().backward()
    for tensor in (x, *model.parameters(), *([mask] if learned else [])):
        assert tensor.grad is not None and tensor.grad.isfinite().all()
    look = SelfAttention(WIDTH, 2).to(dtype)
    seen = look(0.0, x, Context(own=Source(mask=mask)))
    assert seen[:, 2].abs().max() == 0 and seen[:, [0, 1, 3, 4, 5]].abs().amax(-1).min() > 0


class Weighed(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, mask: Tensor, padding: Tensor) -> Tensor:
        return self.model(x, mask=mask, src_key_padding_mask=padding)


def compiled(model: nn.Module, *inputs: Tensor) -> Callable[..., Tensor]:
    torch.compiler.reset()
    return torch.compile(model, backend="eager", fullgraph=True)


def exported(model: nn.Module, *inputs: Tensor) -> Callable[..., Tensor]:
    batch, length = Dim("batch"), Dim("length")
    shapes = ({0: batch, 1: length}, {0: length, 1: length}, {0: batch, 1: length})
    return torch.export.export(model, inputs, dynamic_shapes=shapes).module()


def mapped(model: nn.Module, *inputs: Tensor) -> Callable[..., Tensor]:
    def apply(x: Tensor, mask: Tensor, padding: Tensor) -> Tensor:
        masks = mask.expand(len(x), *mask.shape)
        return torch.func.vmap(lambda *one: model(one[0][None], one[1], one[2][None])[0])(x, masks, padding)

    return apply


@pytest.mark.parametrize(
    ("spelling", "way"),
    [
        ("sequential", compiled),
        ("transevolve", exported),
        *(("sequential", mapped), ("transevolve", mapped)),
        *(
            pytest.param(*both, marks=pytest.mark.slow)
            for both in (("sequential", exported), ("transevolve", compiled))
        ),
    ],
)
def test_the_numbers_are_never_looked_at(spelling: str, way: Callable) -> None:
    """So compiled, exported and mapped models do what eager ones do, with the same refusals: none."""
    model, x = Weighed(Encoder(WIDTH, 2, 1, spelling, hidden=16)).eval(), state(3)
    padding = torch.arange(LENGTH) >= torch.tensor([[6], [4], [0]])  # the last sees nothing
    mask = alibi(1, LENGTH, LENGTH, 1)[0]
    other = way(model, x, mask, padding)
    for weights in (mask, torch.zeros_like(mask), mask.masked_fill(torch.rand(mask.shape) < 0.3, -torch.inf)):
        torch.testing.assert_close(other(x, weights, padding), model(x, weights, padding), rtol=0, atol=1e-11)


def test_the_adjoint_reaches_a_learned_bias() -> None:
    found, x = [], state()
    shape = Shape(width=WIDTH, heads=2, depth=2, norm_eps=0.1)
    plain = stack("rk4:steps=12", shape)
    for gradient in ("backprop", "checkpointed", "adjoint"):
        model = stack(f"rk4:steps=12,gradient={gradient}", shape)
        model.load_state_dict(plain.state_dict())
        mask = alibi(2, LENGTH, LENGTH, 1)[None].requires_grad_()
        model(x, Context(own=Source(mask=mask))).pow(3).sum().backward()
        found.append(mask.grad)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[2], found[0], rtol=0, atol=1e-4)
    assert found[0] is not None and found[0].abs().max() > 1e-2
