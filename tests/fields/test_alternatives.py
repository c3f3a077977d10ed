"""Linear attention and the dense Synthesizer: their formulas, masks, causal order and decoding cache."""

from __future__ import annotations

import pytest
import torch
from closeness import close
from torch import Tensor
from torch.nn import functional as F

from odeum.decode import generate
from odeum.errors import OdeumError
from odeum.fields import Context, Field, Source
from odeum.fields.alternatives import LinearAttention, SynthesizedAttention
from odeum.fields.base import Past
from odeum.models import LanguageModel, build
from odeum.models.settings import Language, Vision

WIDTH, HEADS, LENGTH = 8, 2, 6
KINDS = {
    "linear-attention": lambda: LinearAttention(WIDTH, HEADS),
    "synthesizer": lambda: SynthesizedAttention(WIDTH, HEADS, LENGTH),
}


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def weights_of(field: Field, x: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Attention weights written out, and the values."""
    if isinstance(field, LinearAttention):
        q, k, v = (heads(part) for part in field.qkv(x).chunk(3, -1))
        weights = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT) * visible
        return weights / weights.sum(-1, keepdim=True).clamp_min(1e-30), v
    assert isinstance(field, SynthesizedAttention)
    scores = field.scores(torch.relu(field.hidden(x))).reshape(len(x), x.shape[1], HEADS, LENGTH).transpose(1, 2)
    weights = scores[..., : x.shape[1]].exp() * visible
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-30), heads(field.v(x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", ["none", "causal", "keys", "added", "pairs"])
def test_the_formula_under_every_mask(kind: str, mask: str) -> None:
    torch.manual_seed(0)
    field, x = KINDS[kind](), torch.randn(3, LENGTH - 1, WIDTH, requires_grad=True)
    n = x.shape[1]
    shown = torch.ones(3, 1, 1, n, dtype=torch.bool)
    shown[1, ..., 3:], shown[2] = False, False  # the last sees nothing
    order = torch.ones(n, n, dtype=torch.bool).tril()
    source, visible = {
        "none": (Source(), torch.ones(n, n)),
        "causal": (Source(causal=True), order.float()),
        "keys": (Source(mask=shown), shown.float()),
        "added": (Source(mask=torch.zeros(3, 1, 1, n).masked_fill(~shown, -torch.inf)), shown.float()),
        "pairs": (Source(mask=shown, causal=True), (shown & order).float()),
    }[mask]
    out = field(0.0, x, Context(own=source))
    weights, v = weights_of(field, x, visible)
    close(out, field.out((weights @ v).transpose(1, 2).flatten(-2)), 1e-5)
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_with_a_cache_gives_the_same_logits(kind: str) -> None:
    torch.manual_seed(0)
    model = build(f"parallel:attention={kind}", Language(width=8, heads=2, depth=2, vocabulary=11, length=LENGTH))
    assert isinstance(model, LanguageModel)
    prompt = torch.randint(1, 11, (2, 2))
    cached, plain = (
        generate(model.eval(), prompt, max_new_tokens=4, temperature=0.0, use_cache=use) for use in (True, False)
    )
    assert torch.equal(cached, plain)


def test_what_they_cannot_do_is_refused() -> None:
    x = torch.randn(1, LENGTH + 1, WIDTH)
    with pytest.raises(OdeumError, match="cannot attend to 7"):
        KINDS["synthesizer"]()(0.0, x, Context())
    for make in KINDS.values():
        with pytest.raises(OdeumError, match="earlier layers"):
            make()(0.0, x, Context(own=Source(past=Past())))
    with pytest.raises(OdeumError, match="longest length"):
        build("sequential:attention=synthesizer", Vision(width=8, heads=2, depth=1, image_size=8, patch_size=4))
