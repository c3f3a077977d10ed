"""TransEvolve as whole models: caches, parameter counts, gradients, saving, compiling, blocks."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from closeness import close
from covering import meeting
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim

from odeum import Encoder
from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Context, Source
from odeum.fields.cache import Cache
from odeum.fields.transevolve.evolved_attention import EvolvedAttention
from odeum.fields.transevolve.measure import Measure
from odeum.models import build
from odeum.models.settings import Shape

WIDTH, HEADS = 24, 3
MODELS = [
    "transevolve",
    "transevolve:random-2",
    "transevolve:attention=fused,method=euler",
    "transevolve:attention=linear",
    "transevolve:method=rk4,independent=1",
    "transevolve:method=strang,blocks=2",
]


@pytest.mark.parametrize("architecture", MODELS)
def test_cached_logits_are_uncached_logits(architecture: str) -> None:
    torch.manual_seed(0)
    model = build(
        architecture, "language_small", width=16, heads=2, hidden=32, depth=2, vocabulary=20, length=16
    ).eval()
    ids = torch.randint(20, (3, 11))
    cache = Cache()
    with torch.no_grad():
        whole = model(ids).logits
        parts = [model(ids[:, a:b], cache=cache).logits for a, b in ((0, 4), (4, 5), (5, 8), (8, 9), (9, 10), (10, 11))]
    close(torch.cat(parts, dim=1), whole, 1e-5)


@pytest.mark.parametrize("architecture", MODELS)
def test_cached_translation_is_uncached_translation(architecture: str) -> None:
    torch.manual_seed(0)
    sizes = {"width": 16, "heads": 2, "hidden": 32, "depth": 2, "vocabulary": 20}
    model = build(architecture, "translation_small", **sizes).eval()
    source, target = torch.randint(1, 20, (3, 7)), torch.randint(1, 20, (3, 6))
    keep = (torch.arange(7) < torch.tensor([[7], [4], [6]])).long()
    caches = (Cache(), Cache())
    with torch.no_grad():
        whole = model(source, keep, target).logits
        memory = model.encode(source, keep)
        steps = [model.embedding.logits(model.decode(target[:, i : i + 1], memory, keep, caches)) for i in range(6)]
    close(torch.cat(steps, dim=1), whole, 1e-5)


def test_the_cache_holds_one_k_a_block_and_one_v_a_layer() -> None:
    model = build(
        "transevolve:blocks=2", "language_small", width=16, heads=2, hidden=32, depth=6, vocabulary=20, length=16
    )
    cache = Cache()
    with torch.no_grad():
        model.eval()(torch.randint(20, (1, 5)), cache=cache)
    features = sum(x.shape[1] * x.shape[3] for slot in cache.slots for x in slot)
    # K is 2 × width wide, V as wide as the state; the drift adds one number a head and layer.
    assert features == 2 * (2 * 16) + 6 * (16 + 2)


COUNTS = {  # facts.md 1.6, in millions: with the dead columns of the published code
    ("translation_base", 33_719): {"full-1": 53.51, "full-2": 59.81, "random-1": 28.38, "random-2": 34.67},
    ("translation_base", 31_460): {"full-1": 52.36, "full-2": 58.65, "random-1": 27.22, "random-2": 33.51},
    ("classification_base", 20_002): {"full-1": 9.20, "full-2": 9.73, "random-1": 6.06, "random-2": 6.59},
    ("classification_base", 30_522): {"full-1": 11.89, "full-2": 12.42, "random-1": 8.76, "random-2": 9.28},
    ("classification_base", 256): {"full-1": 4.15, "full-2": 4.67, "random-1": 1.01, "random-2": 1.53},
}


@pytest.mark.parametrize(("preset", "vocabulary"), COUNTS)
def test_published_parameter_counts(preset: str, vocabulary: int) -> None:
    for variant, millions in COUNTS[preset, vocabulary].items():
        with torch.device("meta"):
            model = build(f"transevolve:{variant}", preset, vocabulary=vocabulary)
        live = sum(p.numel() for p in model.parameters())
        if preset == "classification_base":  # the published head has, for two classes, one output
            live += 256 + 1 - sum(p.numel() for p in model.head.parameters())
        dead = sum(getattr(module, "dead_parameters", 0) for module in model.modules())
        assert round((live + dead) / 1e6, 2) == pytest.approx(millions, abs=0.0051)
        width, heads = model.settings.width, model.settings.heads
        measures = [module for module in model.modules() if isinstance(module, Measure)]
        assert sum(m.dead_parameters for m in measures) == len(measures) * (2 * width) * (heads * (width // heads))


@pytest.mark.parametrize("architecture", MODELS)
@pytest.mark.parametrize("cross", [False, True])
def test_every_parameter_gets_a_gradient(architecture: str, cross: bool) -> None:
    torch.manual_seed(0)
    model = stack(architecture, Shape(WIDTH, HEADS, 4), cross)
    x, memory = torch.randn(2, 5, WIDTH), torch.randn(2, 4, WIDTH)
    model(x, Context(other=Source(memory=memory))).square().sum().backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent


@pytest.mark.parametrize("architecture", MODELS)
def test_copied_saved_and_loaded_models_are_bit_equal(architecture: str) -> None:
    torch.manual_seed(0)
    shape = Shape(WIDTH, HEADS, 4)
    model, x = stack(architecture, shape), torch.randn(2, 5, WIDTH)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = stack(f"{architecture}{',' if ':' in architecture else ':'}seed=7", shape)  # reseeded by what is loaded
    other.load_state_dict(torch.load(file))
    out = model(x)
    assert torch.equal(other(x), out)
    assert torch.equal(copy.deepcopy(model)(x), out)


@pytest.mark.parametrize(
    "architecture", ["transevolve:attention=linear", pytest.param("transevolve:random-1", marks=pytest.mark.slow)]
)
def test_compiled_without_a_break(architecture: str) -> None:
    torch.manual_seed(0)
    model, x = stack(architecture, Shape(WIDTH, HEADS, 1)), torch.randn(2, 5, WIDTH)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    close(compiled(x), model(x), 1e-5)
    compiled(x).sum().backward()


@pytest.mark.parametrize("form", ["shared", "fused", "linear"])
def test_autocast_stays_close(form: str) -> None:
    torch.manual_seed(0)
    model, x = stack(f"transevolve:attention={form}", Shape(WIDTH, HEADS, 2)), torch.randn(2, 7, WIDTH)
    right = model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x, Context(own=Source(causal=False)))
        out.float().sum().backward()
    close(out.float(), right, 5e-2)


STEEP = [(), (1,), (0, 1, 2)]
CASES = ["self", "causal", "padded", "cross"]
OPTIONS = ["", "method=rk4", "independent=1", "method=strang", "method=rk4,gradient=adjoint"]


@pytest.mark.parametrize(("words", "case", "steep"), meeting(OPTIONS, CASES, STEEP))
def test_what_is_known_ahead_is_what_the_layers_would_find(words: str, case: str, steep: tuple[int, ...]) -> None:
    """The shared form looks ahead, the fused one does not; where the drift is steep the shared form gives way."""
    torch.manual_seed(0)
    x, memory = (torch.randn(2, 7, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mask = (torch.arange(7) < torch.tensor([[7], [5]])).view(2, 1, 1, 7) if case == "padded" else None
    context = Context(own=Source(mask=mask, causal=case == "causal"), other=Source(memory=memory))
    found = []
    for form in ("shared", "fused"):
        torch.manual_seed(1)
        model = stack(f"transevolve:attention={form},{words}".strip(","), Shape(WIDTH, HEADS, 3), case == "cross")
        model.double()
        with torch.no_grad():
            for i, layer in enumerate(m for m in model.modules() if isinstance(m, EvolvedAttention)):
                layer.coefficients *= 1000.0 if i in steep else 1.0
        if form == "shared" and not words:
            ahead = model.flows[0].anchor(x, context).own.anchor.ahead
            assert len(ahead) == 3 - len({i // 2 for i in steep if i % 2 == 0} if case == "cross" else steep)
        out = model(x, context)
        wanted = [x, *model.parameters(), *([memory] if case == "cross" else [])]
        found.append([out, *torch.autograd.grad(out.square().sum(), wanted)])
    for ours, right in zip(*found, strict=True):
        assert (ours - right).abs().max() <= 1e-9 * (1.0 + right.abs().max())


def test_time_starts_anew_in_each_block() -> None:
    """Two blocks of three layers are two stacks of one block each, in a row."""
    torch.manual_seed(0)
    model, x = stack("transevolve:blocks=2", Shape(WIDTH, HEADS, 6)), torch.randn(2, 5, WIDTH)
    assert torch.equal(model(x), model.flows[1](model.flows[0](x)))
    assert model.flows[0].duration == 3.0
    states = list(model.flows[0].trajectory(x))
    assert len(states) == 4 and torch.equal(model.flows[0].norm(states[-1]), model.flows[0](x))


@pytest.mark.parametrize("words", ["blocks=4", "blocks=2,independent=3", "independent=4"])
def test_impossible_depths_are_refused_in_words(words: str) -> None:
    with pytest.raises(OdeumError, match=r"divide|dealt out"):
        stack(f"transevolve:{words}", Shape(WIDTH, HEADS, 6))


@pytest.mark.parametrize("architecture", ["transevolve", "transevolve:attention=fused", "transevolve:attention=linear"])
@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
def test_nothing_in_nothing_out(architecture: str, shape: tuple[int, int]) -> None:
    x = torch.randn(*shape, WIDTH, requires_grad=True)
    out = stack(architecture, Shape(WIDTH, HEADS, 2))(x)
    assert out.shape == x.shape
    out.sum().backward()


def test_half_precision_never_shares_the_exponential() -> None:
    """exp underflows at −17 there: a drift that float32 takes lightly would lose most keys."""
    torch.manual_seed(0)
    model, x = stack("transevolve", Shape(64, 4, 2)), 2 * torch.randn(2, 40, 64)
    context = Context(own=Source(causal=True))
    with torch.no_grad():
        model.flows[0].own.time.mul_(8)
        right = model(x, context)
    with torch.autocast("cpu", torch.float16):
        out = model(x, context)
    close(out.float(), right, 0.02)
    out.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_faked_tensors_leave_nothing_behind() -> None:
    """Memory estimators run models on fake tensors; constants remembered from there would break the next real run."""
    size = Shape(48, 3, 2)
    with FakeTensorMode():
        assert stack("transevolve", size)(torch.randn(2, 5, 48)).shape == (2, 5, 48)
    assert type(stack("transevolve", size)(torch.randn(2, 5, 48))) is torch.Tensor


@pytest.mark.parametrize(
    ("architecture", "causal"),
    [
        (
            "transevolve:attention=linear",
            False,
        ),  # others: test_graphs.py, test_weighing_masks.py
        pytest.param("transevolve:random-1", True, marks=pytest.mark.slow),
        pytest.param("transevolve", True, marks=pytest.mark.slow),
    ],
)
def test_exported_for_any_batch_and_length(architecture: str, causal: bool) -> None:
    model = Encoder(16, 2, 2, architecture, hidden=32).eval()
    shapes = {"src": {0: Dim("b", min=2, max=64), 1: Dim("n", min=2, max=512)}, "is_causal": None}
    program = torch.export.export(model, (torch.randn(3, 40, 16),), {"is_causal": causal}, dynamic_shapes=shapes)
    for size in ((2, 7), (5, 200)):
        x = torch.randn(*size, 16)
        close(program.module()(x, is_causal=causal), model(x, is_causal=causal), 1e-5)
