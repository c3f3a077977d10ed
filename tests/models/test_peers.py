"""With their weights, ours gives what torch, torchdiffeq, transformers and timm give."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import Tensor, nn

from odeum import Decoder, Encoder, build
from odeum.fields import Context, FeedForward, Field, PreNorm, Rotary, SelfAttention, Source, Sum
from odeum.flow import Flow, Stack
from odeum.integrators import BOSH3, DOPRI5, EULER, HEUN, MIDPOINT, RK4_38, Adaptive, FixedSteps, RungeKutta, Tableau

pytestmark = pytest.mark.usefixtures("float64")


def copy_linear(ours: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    ours.load_state_dict({"weight": weight, "bias": bias})


def copy_layer(terms: tuple[Field, ...], layer: nn.Module) -> None:
    """Weights of nn.TransformerEncoderLayer or nn.TransformerDecoderLayer into the terms of a field."""
    *looks, feed = terms
    copy_linear(looks[0].field.qkv, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias)
    looks[0].field.out.load_state_dict(layer.self_attn.out_proj.state_dict())
    if len(looks) == 2:
        attention, width = layer.multihead_attn, layer.linear1.in_features
        copy_linear(looks[1].field.q, attention.in_proj_weight[:width], attention.in_proj_bias[:width])
        copy_linear(looks[1].field.kv, attention.in_proj_weight[width:], attention.in_proj_bias[width:])
        looks[1].field.out.load_state_dict(attention.out_proj.state_dict())
    feed.field.up.load_state_dict(layer.linear1.state_dict())
    feed.field.down.load_state_dict(layer.linear2.state_dict())
    for i, term in enumerate(terms, 1):
        term.norm.load_state_dict(getattr(layer, f"norm{i}").state_dict())


def scramble(module: nn.Module) -> None:
    """So that biases and norms are not zeros and ones."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)


def masks(kind: str, batch: int, length: int) -> tuple[Tensor | None, Tensor | None]:
    attention, padding = None, None
    if "causal" in kind:
        attention = nn.Transformer.generate_square_subsequent_mask(length)
    if "padded" in kind:
        padding = torch.arange(length) >= torch.tensor([[length], [length - 2], [1]])[:batch]
    if "float" in kind and padding is not None:
        padding = torch.zeros(padding.shape).masked_fill(padding, -torch.inf)
    return attention, padding


KINDS = ["free", "causal", "padded", "causal padded float"]


def torch_encoder(placement: str, activation: str) -> tuple[nn.Module, Encoder]:
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, activation=activation, batch_first=True, norm_first=placement == "sequential"
    )
    final = nn.LayerNorm(8) if placement == "sequential" else None
    theirs = nn.TransformerEncoder(layer, 3, norm=final, enable_nested_tensor=False)
    scramble(theirs)
    ours = Encoder(8, 2, 3, placement, hidden=16, activation=activation, norm_eps=1e-5)
    for flow, layer in zip(ours.stack.flows, theirs.layers, strict=True):
        copy_layer(flow.field.terms, layer)
    if final is not None:
        ours.stack.norm.load_state_dict(theirs.norm.state_dict())
    return theirs, ours


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["sequential", "post-norm"])
@pytest.mark.parametrize("kind", KINDS)
def test_sequential_is_torchs_encoder(placement: str, activation: str, kind: str) -> None:
    theirs, ours = torch_encoder(placement, activation)
    x = torch.randn(3, 5, 8)
    mask, padding = masks(kind, 3, 5)
    expected = theirs(x, mask=mask, src_key_padding_mask=padding)
    torch.testing.assert_close(ours(x, mask=mask, src_key_padding_mask=padding), expected, rtol=0, atol=1e-12)
    if kind == "causal":
        torch.testing.assert_close(ours(x, is_causal=True), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("placement", ["sequential", "post-norm"])
@pytest.mark.parametrize("kind", KINDS)
def test_sequential_with_memory_is_torchs_decoder(placement: str, kind: str) -> None:
    layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=placement == "sequential")
    final = nn.LayerNorm(8) if placement == "sequential" else None
    theirs = nn.TransformerDecoder(layer, 3, norm=final)
    scramble(theirs)
    ours = Decoder(8, 2, 3, placement, hidden=16, activation="relu", norm_eps=1e-5)
    for flow, layer in zip(ours.stack.flows, theirs.layers, strict=True):
        copy_layer(flow.field.terms, layer)
    if final is not None:
        ours.stack.norm.load_state_dict(theirs.norm.state_dict())
    x, memory = torch.randn(3, 5, 8), torch.randn(3, 7, 8)
    mask, padding = masks(kind, 3, 5)
    _, memory_padding = masks(kind, 3, 7)
    words = {"tgt_mask": mask, "tgt_key_padding_mask": padding, "memory_key_padding_mask": memory_padding}
    expected = theirs(x, memory, **words)
    torch.testing.assert_close(ours(x, memory, **words), expected, rtol=0, atol=1e-12)


def test_a_mask_for_each_head_is_read_as_torch_reads_it() -> None:
    theirs, ours = torch_encoder("sequential", "relu")
    x, mask = torch.randn(3, 5, 8), torch.rand(6, 5, 5) < 0.4
    mask[:, range(5), range(5)] = False
    torch.testing.assert_close(ours(x, mask=mask), theirs(x, mask=mask), rtol=0, atol=1e-12)


class Attend(Field):
    """A small real field for the solvers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Sum(PreNorm(nn.LayerNorm(8), SelfAttention(8, 2)), PreNorm(nn.LayerNorm(8), FeedForward(8, 16)))

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return (1.0 + t) * self.inner(t, x, context)


def their_solution(field: Field, x: Tensor, end: float, **options) -> Tensor:
    torchdiffeq = pytest.importorskip("torchdiffeq")

    def function(t: Tensor, x: Tensor) -> Tensor:
        return field(float(t), x, Context())

    return torchdiffeq.odeint(function, x, torch.tensor([0.0, end]), **options)[-1]


@pytest.mark.parametrize(
    ("tableau", "theirs"), [(EULER, "euler"), (MIDPOINT, "midpoint"), (HEUN, "heun2"), (RK4_38, "rk4")]
)
def test_fixed_steps_are_torchdiffeqs(tableau: Tableau, theirs: str) -> None:
    field, x = Attend(), torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = their_solution(field, x, 2.0, method=theirs, options={"step_size": 0.25})
        ours = Flow(field, FixedSteps(RungeKutta(tableau), 4), 0.0, 2.0)(x)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("tableau", "theirs"), [(BOSH3, "bosh3"), (DOPRI5, "dopri5")])
def test_adaptive_steps_agree_with_torchdiffeqs(tableau: Tableau, theirs: str) -> None:
    field, x = Attend(), torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = their_solution(field, x, 1.0, method=theirs, rtol=1e-7, atol=1e-8)
        ours = Flow(field, Adaptive(tableau, rtol=1e-7, atol=1e-8))(x)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-4)


def neox_layers(parallel: bool) -> tuple[nn.Module, Stack]:
    """A tiny GPT-NeoX and our stack with its weights: parallel = Euler, not parallel = Lie–Trotter."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPTNeoXConfig(
        vocab_size=11,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        hidden_act="gelu",
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
        use_parallel_residual=parallel,
        attention_dropout=0.0,
        hidden_dropout=0.0,
    )
    theirs = transformers.GPTNeoXModel(config).double().eval()
    scramble(theirs)
    ours = Encoder(16, 2, 2, "parallel" if parallel else "sequential", hidden=24, norm_eps=config.layer_norm_eps).stack
    for flow, layer in zip(ours.flows, theirs.layers, strict=True):
        look, feed = flow.field.terms
        look.norm.load_state_dict(layer.input_layernorm.state_dict())
        feed.norm.load_state_dict(layer.post_attention_layernorm.state_dict())
        joint = layer.attention.query_key_value  # heads outside, (q, k, v) inside
        copy_linear(
            look.field.qkv,
            joint.weight.unflatten(0, (2, 3, 8)).transpose(0, 1).flatten(0, 2),
            joint.bias.unflatten(0, (2, 3, 8)).transpose(0, 1).flatten(),
        )
        look.field.out.load_state_dict(layer.attention.dense.state_dict())
        feed.field.up.load_state_dict(layer.mlp.dense_h_to_4h.state_dict())
        feed.field.down.load_state_dict(layer.mlp.dense_4h_to_h.state_dict())
    ours.norm.load_state_dict(theirs.final_layer_norm.state_dict())
    return theirs, ours


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_gpt_neox(parallel: bool, padded: bool) -> None:
    theirs, ours = neox_layers(parallel)
    tokens = torch.randint(11, (3, 7))
    keep = torch.ones(3, 7, dtype=torch.long)
    if padded:
        keep[0, 5:] = 0
        keep[1, 3:] = 0
    with torch.no_grad():
        expected = theirs(input_ids=tokens, attention_mask=keep).last_hidden_state
        own = Source(keep.bool()[:, None, None, :] if padded else None, causal=True, rotary=Rotary(torch.arange(7)))
        found = ours(theirs.embed_in(tokens), Context(own=own))
    # transformers keeps its rotation in float32
    torch.testing.assert_close(found[keep.bool()], expected[keep.bool()], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["deit_tiny"])
def test_timms_deit(name: str) -> None:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    library = torch.library.Library("torchvision", "FRAGMENT")  # without it torchvision fails beside a CPU torch
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import timm

    theirs = timm.create_model(f"{name}_patch16_224", num_classes=7, img_size=64).double().eval()
    scramble(theirs)
    ours = build("sequential", name, image_size=64, classes=7).eval()
    ours.patch.load_state_dict(theirs.patch_embed.proj.state_dict())
    ours.head.load_state_dict(theirs.head.state_dict())
    ours.stack.norm.load_state_dict(theirs.norm.state_dict())
    ours.token.data, ours.position.data = theirs.cls_token.data, theirs.pos_embed.data
    for flow, block in zip(ours.stack.flows, theirs.blocks, strict=True):
        look, feed = flow.field.terms
        look.norm.load_state_dict(block.norm1.state_dict())
        feed.norm.load_state_dict(block.norm2.state_dict())
        look.field.qkv.load_state_dict(block.attn.qkv.state_dict())
        look.field.out.load_state_dict(block.attn.proj.state_dict())
        feed.field.up.load_state_dict(block.mlp.fc1.state_dict())
        feed.field.down.load_state_dict(block.mlp.fc2.state_dict())
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images).logits, theirs(images), rtol=1e-9, atol=1e-9)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
