"""Who may look at whom: causality and padding by perturbation, and the three conventions of masks."""

from __future__ import annotations

import pytest
import torch
from covering import meeting
from torch import Tensor

from odeum import Decoder, Encoder
from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Context, CrossAttention, SelfAttention, Source
from odeum.models.base import key_mask
from odeum.models.settings import Shape
from odeum.registry.names import ARCHITECTURES

FIXED = [
    *(name for name in ARCHITECTURES if name != "continuous"),
    "parallel:norm=shared",
    "parallel:norm=post-sum",
    "parallel:norm=peri",
    "parallel:norm=branch",
    "macaron:norm=post",
    "rk4:steps=2,independent=1",
    "transevolve:attention=fused",
    "transevolve:random-2,method=euler",
]
WIDTH, LENGTH = 8, 6

double = pytest.mark.usefixtures("float64")


def encoder(spelling: str) -> Encoder:
    return Encoder(WIDTH, 2, 4, spelling, hidden=16)


def decoder(spelling: str) -> Decoder:
    return Decoder(WIDTH, 2, 4, spelling, hidden=16)


def state(batch: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randn(batch, length, WIDTH)


@double
@pytest.mark.parametrize("spelling", FIXED)
def test_the_past_does_not_see_the_future(spelling: str) -> None:
    model, x = encoder(spelling), state()
    for position in (1, LENGTH - 1):
        other = x.clone()
        other[:, position:] += torch.randn(2, LENGTH - position, WIDTH)
        before, after = model(x, is_causal=True), model(other, is_causal=True)
        torch.testing.assert_close(before[:, :position], after[:, :position], rtol=0, atol=1e-12)
        assert (before[:, position:] - after[:, position:]).abs().amax(-1).min() > 1e-3
    torch.testing.assert_close(model(x[:, :3], is_causal=True), model(x, is_causal=True)[:, :3], rtol=0, atol=1e-12)


@double
@pytest.mark.parametrize("spelling", FIXED)
def test_without_the_causal_word_everybody_sees_everybody(spelling: str) -> None:
    model, x = encoder(spelling), state()
    other = x.clone()
    other[:, -1] += 1.0 + torch.rand(2, WIDTH)
    assert (model(x) - model(other)).abs().amax(-1).min() > 1e-8


@double
@pytest.mark.parametrize(("spelling", "causal"), meeting(FIXED, [False, True]))
def test_padding_is_not_seen(spelling: str, causal: bool) -> None:
    model, x = encoder(spelling), state()
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, 4:] = True
    other = x.clone()
    other[1, 4:] += torch.randn(2, WIDTH)
    before, after = (model(y, src_key_padding_mask=padding, is_causal=causal) for y in (x, other))
    torch.testing.assert_close(before[~padding], after[~padding], rtol=0, atol=1e-12)
    alone = model(x[1:, :4], is_causal=causal)
    torch.testing.assert_close(before[1:, :4], alone, rtol=0, atol=1e-12)


@double
@pytest.mark.parametrize("spelling", FIXED)
def test_padding_of_the_memory_is_not_seen(spelling: str) -> None:
    model, x, memory = decoder(spelling), state(), state(length=5)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    out = model(x, memory, memory_key_padding_mask=padding, tgt_is_causal=True)
    alone = model(x[1:], memory[1:, :3], tgt_is_causal=True)
    torch.testing.assert_close(out[1:], alone, rtol=0, atol=1e-12)
    other = memory.clone()
    other[1, 2] += 1.0 + torch.rand(WIDTH)
    moved = model(x, other, memory_key_padding_mask=padding, tgt_is_causal=True)
    assert (moved[1] - out[1]).abs().amax(-1).min() > 1e-6
    torch.testing.assert_close(moved[0], out[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("spelling", ["sequential", "parallel", "post-norm", "rk4", "transevolve"])
def test_a_row_without_anything_to_see_is_finite_forward_and_backward(
    spelling: str, causal: bool, dtype: torch.dtype
) -> None:
    model = decoder(spelling).to(dtype)
    x, memory = state().to(dtype).requires_grad_(), state(length=5).to(dtype).requires_grad_()
    own = torch.zeros(2, LENGTH, dtype=torch.bool)
    own[1] = True
    other = torch.zeros(2, 5, dtype=torch.bool)
    other[1] = True
    out = model(x, memory, tgt_key_padding_mask=own, memory_key_padding_mask=other, tgt_is_causal=causal)
    out.square().sum().backward()
    assert out.isfinite().all()
    for tensor in (x, memory, *model.parameters()):
        assert tensor.grad is not None and tensor.grad.isfinite().all()
    assert memory.grad is not None and memory.grad[1].abs().max() == 0


@double
def test_a_query_that_sees_nothing_gets_nothing() -> None:
    look = SelfAttention(WIDTH, 2)
    torch.nn.init.zeros_(look.out.bias)
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    mask[2] = False
    out = look(0.0, state(), Context(own=Source(mask=mask)))
    assert out[:, 2].abs().max() == 0
    assert out[:, [0, 1, 3, 4, 5]].abs().amax(-1).min() > 0


@double
@pytest.mark.parametrize("spelling", [*FIXED, "continuous"])
def test_permutation_equivariance(spelling: str) -> None:
    """Particles have no names: without positions and masks, permuting them permutes the result."""
    model, x = encoder(spelling), state()
    order = torch.randperm(LENGTH)
    torch.testing.assert_close(model(x[:, order]), model(x)[:, order], rtol=0, atol=1e-11)


@double
def test_the_three_conventions_say_the_same() -> None:
    """HF: 1 = keep.  nn.MultiheadAttention: True = drop, or −inf.  SDPA, and inside Odeum: True = keep."""
    keep = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    model, x = encoder("sequential"), state()
    hugging_face = model.stack(x, Context(own=Source(mask=key_mask(keep, 2, LENGTH))))
    torch_bool = model(x, src_key_padding_mask=keep == 0)
    torch_float = model(x, src_key_padding_mask=torch.zeros(2, LENGTH).masked_fill(keep == 0, -torch.inf))
    torch_square = model(x, mask=(keep == 0)[:, None, None, :].expand(2, 2, LENGTH, LENGTH).flatten(0, 1))
    sdpa = model.stack(x, Context(own=Source(mask=keep.bool()[:, None, None, :])))
    for other in (torch_bool, torch_float, torch_square, sdpa):
        torch.testing.assert_close(other, hugging_face, rtol=0, atol=1e-14)
    assert not torch.allclose(model(x), hugging_face)


@double
def test_both_causal_words_say_the_same() -> None:
    model, x = encoder("rk4"), state()
    flag = model(x, is_causal=True)
    drop = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    torch.testing.assert_close(model(x, mask=drop), flag, rtol=0, atol=1e-13)
    torch.testing.assert_close(model(x, mask=drop, is_causal=True), flag, rtol=0, atol=1e-13)
    both = Source(mask=torch.ones(2, 1, 1, LENGTH, dtype=torch.bool), causal=True)
    torch.testing.assert_close(model.stack(x, Context(own=both)), flag, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"src_key_padding_mask": torch.zeros(2, 7, dtype=torch.bool)}, r"has shape \(2, 7\), but must be \(2, 6\)"),
        ({"src_key_padding_mask": torch.zeros(6, 2, dtype=torch.bool)}, r"has shape \(6, 2\), but must be \(2, 6\)"),
        ({"mask": torch.zeros(5, 6, dtype=torch.bool)}, r"has shape \(5, 6\), but must be \(6, 6\)"),
        ({"mask": torch.zeros(2, 6, 6, dtype=torch.bool)}, r"but must be \(6, 6\) or \(4, 6, 6\)"),
        ({"src_key_padding_mask": torch.zeros(2, 6, dtype=torch.long)}, "must be bool"),
        ({"mask": torch.zeros(6, 6, dtype=torch.long)}, "must be bool .* or float .added to the scores"),
    ],
)
def test_wrong_masks_are_refused(words: dict[str, Tensor], sentence: str) -> None:
    with pytest.raises(OdeumError, match=sentence):
        encoder("sequential")(state(), **words)


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (
            torch.ones(2, 1, 1, 5, dtype=torch.bool),
            r"of shape \[2, 1, 1, 5\] does not broadcast to .* = \[2, 2, 6, 6\]",
        ),
        (torch.ones(3, 1, 1, 6, dtype=torch.bool), r"of shape \[3, 1, 1, 6\] does not broadcast"),
        (torch.ones(2, 6, dtype=torch.bool), r"of shape \[2, 6\] does not broadcast"),
        (torch.ones(1, 2, 1, 1, 6, dtype=torch.bool), "does not broadcast"),
        (torch.ones(2, 1, 1, 6, dtype=torch.int), r"is boolean \(True .*\) or floating \(added .*\), not torch.int32"),
    ],
)
@pytest.mark.parametrize("spelling", ["sequential", "transevolve:attention=shared", "transevolve:attention=fused"])
def test_a_source_refuses_a_mask_that_does_not_fit(mask: Tensor, sentence: str, spelling: str) -> None:
    with pytest.raises(OdeumError, match=sentence):
        stack(spelling, Shape(width=WIDTH, heads=2, depth=2))(state(), Context(own=Source(mask=mask)))


def test_cross_attention_without_a_memory_says_what_is_missing() -> None:
    with pytest.raises(OdeumError, match="cross-attention needs a memory"):
        CrossAttention(WIDTH, 2)(0.0, state(), Context())
    with pytest.raises(OdeumError, match=r"the input has shape \(2, 6, 9\), but must be \[batch, length, 8\]"):
        encoder("sequential")(torch.randn(2, 6, 9))


@pytest.mark.parametrize("shape", [(4, 16), (3, 4, 16), (2, 4, 8)])
def test_a_memory_that_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(OdeumError, match=r"the memory has shape .* but must be \[2, length, 16\]"):
        Decoder(16, 2, 1)(torch.randn(2, 3, 16), torch.randn(*shape))


def test_a_causal_memory_is_one_with_a_causal_mask() -> None:
    model, x, memory = Decoder(16, 2, 2), torch.randn(2, 4, 16), torch.randn(2, 4, 16)
    mask = torch.ones(4, 4, dtype=torch.bool).triu(1)
    torch.testing.assert_close(model(x, memory, memory_is_causal=True), model(x, memory, memory_mask=mask))
