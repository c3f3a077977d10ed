"""Products by oneDNN: the same numbers and gradients as torch's own, and out of the way where somebody looks on.

Everywhere the processor is taken to be one on which oneDNN is the faster library, and no product to be too small.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch
from closeness import close
from test_strips import Called
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from odeum import products
from odeum.decode import beam_search, generate
from odeum.decode.ordered import OrderedMaps
from odeum.fields import Context, linear_maps, tiled_attention
from odeum.fields.attention import CrossAttention, SelfAttention, attend
from odeum.fields.base import Source
from odeum.fields.feedforward import FeedForward
from odeum.fields.linear_maps import linear_map, through
from odeum.fields.transevolve import exponential
from odeum.models import build
from odeum.models.cross_entropy import cross_entropy
from odeum.products import OneDnn, Torchs, library, multiplies, transposed_times

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="torch was built without oneDNN",
)
ONEDNN = torch.ops.mkldnn._linear_pointwise.default if torch.backends.mkldnn.is_available() else None


@pytest.fixture(autouse=True)
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "faster_here", lambda: True)
    monkeypatch.setattr(products, "LEAST_PRODUCT", 1)
    monkeypatch.setattr(linear_maps, "LEAST_MAP", 1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of what oneDNN was asked to multiply: a dispatch mode would keep it from being asked."""
    seen: list[tuple[int, ...]] = []
    ask = OneDnn.linear

    def asked(x: Tensor, *rest: Tensor) -> Tensor:
        seen.append(tuple(x.shape))
        return ask(x, *rest)

    monkeypatch.setattr(OneDnn, "linear", staticmethod(asked))
    return seen


def without(compute: Callable[[], object]) -> object:
    """What torch itself computes."""
    torch.backends.mkldnn.enabled = False  # ty: ignore[invalid-assignment]
    try:
        return compute()
    finally:
        torch.backends.mkldnn.enabled = True  # ty: ignore[invalid-assignment]


def layouts(rows: int, columns: int) -> Iterator[Tensor]:
    """A matrix in every order in which it may lie."""
    yield torch.randn(rows, columns)
    yield torch.randn(columns, rows).T
    yield torch.randn(rows, columns + 3)[:, :columns]
    yield torch.randn(2 * rows, columns)[::2]
    yield torch.randn(rows, 1).expand(rows, columns)
    yield torch.randn(rows, columns).flip(0)


@pytest.mark.parametrize("m, k, n", [(5, 7, 3), (1, 16, 9), (33, 1, 17), (16, 64, 1)])
def test_products_of_matrices_that_lie_anyhow(m: int, k: int, n: int) -> None:
    for a, b in product(layouts(m, k), layouts(k, n)):
        close(OneDnn.times(a, b), a @ b, 1e-5)
        close(OneDnn.linear(a, b.T, torch.ones(n)), a @ b + 1, 1e-5)
    for a, b in product(layouts(k, m), layouts(k, n)):
        made = transposed_times(OneDnn, a, b)
        close(made, a.T @ b, 1e-5)
        assert made.is_contiguous()


@pytest.mark.parametrize("bias", [torch.arange(20.0)[::2], torch.tensor([2.0]).expand(10)], ids=["strided", "expanded"])
def test_a_bias_that_lies_anyhow(bias: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odeum.decode.ordered.LEAST_WORK", 1)
    module, x = nn.Linear(6, 10), torch.randn(8, 6)
    module.bias = nn.Parameter(bias)
    close(through(module, x), module(x), 1e-6)
    with torch.no_grad():
        close(OrderedMaps()(module)(x), module(x), 1e-6)


def test_a_sum_of_products_over_parts() -> None:
    for wide, narrow in ((9, 4), (4, 9)):
        a, b = torch.randn(12, wide), torch.randn(12, narrow)
        for by in (Torchs, OneDnn):
            parts = by.sum()
            for rows in (slice(0, 5), slice(5, 12)):
                parts.add(a[rows], b[rows])
            close(parts.total(), a.T @ b, 1e-5)


@pytest.mark.parametrize("shape", [(12, 6), (2, 6, 6), (2, 3, 2, 6)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_a_map_has_torchs_values_and_gradients(
    shape: tuple[int, ...], bias: bool, calls: list[tuple[int, ...]]
) -> None:
    module, x = nn.Linear(6, 10, bias=bias), torch.randn(shape, requires_grad=True)
    found = []
    for compute in (lambda: through(module, x), lambda: module(x)):
        out = compute()
        weight = torch.linspace(-1.0, 1.0, out.numel()).view_as(out)
        found.append([out, *torch.autograd.grad((weight * out).sum(), [x, *module.parameters()])])
    for ours, right in zip(*found, strict=True):
        close(ours, right, 1e-5)
        assert ours.is_contiguous()  # as code that flattens gradients takes for granted
    assert len(calls) == 3
    before = len(calls)
    with torch.no_grad():
        close(through(module, x), module(x), 1e-5)
    assert len(calls) == before + 1


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    module, x = nn.Linear(6, 10), torch.randn(12, 6)
    module.weight.requires_grad_(False)
    through(module, x).sum().backward()
    assert module.weight.grad is None and x.grad is None
    close(module.bias.grad, torch.full((10,), 12.0), 1e-6)


def test_the_gradient_can_be_differentiated(calls: list[tuple[int, ...]]) -> None:
    """A map that acts twice, so that its second input comes from its weight."""
    module, x = nn.Linear(6, 6), torch.randn(8, 6, requires_grad=True)
    found = []
    for apply in (lambda y: through(module, y), module):
        slope = torch.autograd.grad(apply(apply(x).tanh()).square().sum(), x, create_graph=True)[0]
        found.append(torch.autograd.grad(slope.square().sum(), [x, module.weight]))
    assert calls
    for ours, right in zip(*found, strict=True):
        close(ours, right, 1e-4)


def test_gradients_in_batches() -> None:
    module, x, directions = nn.Linear(6, 10), torch.randn(8, 6, requires_grad=True), torch.randn(3, 8, 10)
    ours, right = (
        torch.autograd.grad(out, x, directions, is_grads_batched=True)[0] for out in (through(module, x), module(x))
    )
    close(ours, right, 1e-5)


def test_a_weight_that_is_changed_before_its_gradient_is_told() -> None:
    module = nn.Linear(6, 10)
    out = through(module, torch.randn(8, 6, requires_grad=True)).sum()
    with torch.no_grad():
        module.weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_made_again_it_ends_before_its_product(calls: list[tuple[int, ...]]) -> None:
    module, x = nn.Linear(6, 10), torch.randn(8, 6, requires_grad=True)
    checkpoint(lambda y: through(module, y), x, use_reentrant=False).sum().backward()
    assert len(calls) == 3  # forward and two gradients
    close(x.grad, module.weight.sum(0).expand(8, 6), 1e-5)


def counted(module: nn.Linear, x: Tensor) -> None:
    with FlopCounterMode(display=False) as counter:
        through(module, x.requires_grad_()).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 8 * 6 * 10


def looked_at(module: nn.Linear, x: Tensor) -> None:
    with Called() as mode:
        through(module, x)
    assert torch.ops.aten.addmm.default in mode.seen


def hooked(module: nn.Linear, x: Tensor) -> None:
    seen: list[Tensor] = []
    module.register_forward_hook(lambda module, given, out: seen.append(out))
    through(module, x)
    assert seen


def hooked_backward(module: nn.Linear, x: Tensor) -> None:
    seen: list[object] = []
    module.register_full_backward_hook(lambda *given: seen.append(given))
    through(module, x.requires_grad_()).sum().backward()
    assert seen


def parametrized(module: nn.Linear, x: Tensor) -> None:
    parametrizations.weight_norm(module)
    close(through(module, x), module(x), 0)


def patched(module: nn.Linear, x: Tensor) -> None:
    module.forward = lambda input: input * 2  # ty: ignore[invalid-assignment]
    close(through(module, x), x * 2, 0)


def another_kind(module: nn.Linear, x: Tensor) -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    other = Doubled(6, 10)
    close(through(other, x), other(x), 0)


def lent(module: nn.Linear, x: Tensor) -> None:
    """Other weights in the place of its own."""

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = module

        def forward(self, x: Tensor) -> Tensor:
            return through(self.part, x)

    weights = {"part.weight": torch.ones(10, 6, requires_grad=True), "part.bias": torch.zeros(10)}
    torch.func.functional_call(Whole(), weights, (x,)).sum().backward()
    assert module.weight.grad is None
    close(weights["part.weight"].grad, x.sum(0).expand(10, 6), 1e-5)


def mapped(module: nn.Linear, x: Tensor) -> None:
    close(torch.func.vmap(lambda y: through(module, y.unsqueeze(0)))(x).squeeze(1), module(x), 1e-6)


def pushed_forward(module: nn.Linear, x: Tensor) -> None:
    step = torch.randn_like(x)
    close(torch.func.jvp(lambda y: through(module, y), (x,), (step,))[1], step @ module.weight.T, 1e-6)


def cast(module: nn.Linear, x: Tensor) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert through(module, x).dtype == torch.bfloat16


def double(module: nn.Linear, x: Tensor) -> None:
    close(through(module.double(), x.double()), module(x.double()), 0)


def one_row(module: nn.Linear, x: Tensor) -> None:
    for row in (x[0], x[:1]):
        close(through(module, row), module(row), 0)


def less_precise_in_new_words(module: nn.Linear, x: Tensor) -> None:
    """Which the older question cannot be asked after."""
    code = """
import torch
from torch import nn
from odeum import products
from odeum.fields import linear_maps
products.faster_here, products.LEAST_PRODUCT, linear_maps.LEAST_MAP = (lambda: True), 1, 1
torch.backends.cuda.matmul.fp32_precision = "tf32"
module, x = nn.Linear(6, 10), torch.randn(8, 6)
assert products.library(1, x) is products.OneDnn
torch.testing.assert_close(linear_maps.through(module, x), module(x))
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
assert products.library(1, x) is products.Torchs
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def sparse(module: nn.Linear, x: Tensor) -> None:
    module.weight = nn.Parameter(module.weight.detach().to_sparse_csr(), requires_grad=False)
    with torch.no_grad():
        close(through(module, x), module(x), 0)


def without_fit(module: nn.Linear, x: Tensor) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        through(module, x[:, :5])
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
        close(through(module, x), module(x), 0)
    finally:
        torch.set_float32_matmul_precision("highest")


def switched_off(module: nn.Linear, x: Tensor) -> None:
    close(without(lambda: through(module, x)), module(x), 0)
    assert without(multiplies) == "torch" and multiplies() == "oneDNN"


WISHES = (counted, looked_at, hooked, hooked_backward, parametrized, patched, another_kind, lent, mapped)
MORE_WISHES = (pushed_forward, cast, double, one_row, less_precise, switched_off)
RARE_WISHES = (less_precise_in_new_words, sparse, without_fit, symbolic)


@pytest.mark.parametrize("wish", WISHES + MORE_WISHES + RARE_WISHES)
def test_it_steps_aside(wish: Callable[[nn.Linear, Tensor], None], calls: list[tuple[int, ...]]) -> None:
    wish(nn.Linear(6, 10), torch.randn(8, 6))
    assert not calls


def test_a_compiled_map_is_torchs_own(calls: list[tuple[int, ...]]) -> None:
    module = nn.Linear(6, 10)
    graph = torch.export.export(
        nn.Sequential(SelfAttentionOnly()), (torch.randn(2, 5, 8),), dynamic_shapes=({1: torch.export.Dim("n")},)
    )
    assert ONEDNN not in {node.target for node in graph.graph.nodes}
    compiled = torch.compile(lambda x: through(module, x), backend="eager", fullgraph=True)
    assert compiled(torch.randn(8, 6)).shape == (8, 10)
    assert not calls


class SelfAttentionOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.field = SelfAttention(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.field(0.0, x, Context())


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("kind", ["self", "cross", "feedforward"])
def test_fields_with_and_without(kind: str, activation: str, calls: list[tuple[int, ...]]) -> None:
    fields = {
        "self": lambda: SelfAttention(8, 2),
        "cross": lambda: CrossAttention(8, 2),
        "feedforward": lambda: FeedForward(8, activation=activation),
    }
    field, x = fields[kind](), torch.randn(2, 5, 8, requires_grad=True)
    memory = torch.randn(2, 4, 8, requires_grad=True)
    inputs = [x, *field.parameters(), *([memory] if kind == "cross" else [])]

    def compute() -> list[Tensor]:
        out = field(0.0, x, Context(other=Source(memory=memory)))
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    ours, asked = compute(), len(calls)
    assert asked >= 6
    for one, right in zip(ours, without(compute), strict=True):  # ty: ignore[invalid-argument-type]
        close(one, right, 1e-4)
    assert len(calls) == asked


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("queries, keys", [(9, 9), (5, 9)])
def test_the_shared_exponential(
    causal: bool, masked: bool, queries: int, keys: int, calls: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole samples at once, and in tiles of rows."""
    for tile, causal_tile in ((1 << 21, 256), (1, 2)):
        monkeypatch.setattr(exponential, "TILE", tile)
        monkeypatch.setattr(exponential, "CAUSAL_TILE", causal_tile)
        torch.manual_seed(1)
        q, k, v = torch.randn(2, 3, queries, 4), torch.randn(2, 3, keys, 4), torch.randn(2, 3, keys, 16)
        inputs = [
            q.requires_grad_(),
            k.requires_grad_(),
            v.requires_grad_(),
            torch.randn(2, 3, 1, keys).requires_grad_(),
        ]
        mask = torch.rand(2, 1, queries, keys) > 0.3 if masked else None

        def compute(inputs: list[Tensor] = inputs, mask: Tensor | None = mask) -> list[Tensor]:
            q, k, v, b = inputs
            shared = exponential.SharedExponential.measure(q, k, mask, causal)
            (evolution,) = shared.evolve(b)
            out = shared.act(evolution, v)
            return [out, *torch.autograd.grad(out.square().sum(), inputs)]

        ours, asked = compute(), len(calls)
        assert asked
        for one, right in zip(ours, without(compute), strict=True):  # ty: ignore[invalid-argument-type]
            close(one, right, 1e-4)
        assert len(calls) == asked


MASKS: dict[str, Callable[[], Tensor | None]] = {
    "none": lambda: None,
    "keys": lambda: (torch.arange(9) < 7).expand(2, 1, 1, 9),
    "pairs": lambda: torch.rand(2, 3, 9, 9) > 0.3,
    "blind": lambda: torch.arange(9).unsqueeze(1).expand(9, 9) != 4,
    "added": lambda: torch.randn(3, 9, 9),
    "added, blind": lambda: torch.zeros(9, 9).index_fill(0, torch.tensor(4), -torch.inf),
}


@pytest.fixture
def tiny_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled_attention, "LEAST_HEAD", 1)
    monkeypatch.setattr(tiled_attention, "TILE_OF_SCORES", 1)
    tiles = tiled_attention._tiles

    def smaller(queries: int, keys: int, causal: bool) -> Iterator[tuple[slice, slice]]:
        """The least tile is larger than these sequences."""
        for start in range(0, queries, 4):
            stop = min(start + 4, queries)
            yield slice(start, stop), slice(0, stop if causal else keys)
        assert list(tiles(queries, keys, causal)) == [(slice(0, queries), slice(0, keys))]

    monkeypatch.setattr(tiled_attention, "_tiles", smaller)


@pytest.mark.usefixtures("tiny_tiles")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_in_tiles(mask: str, causal: bool, calls: list[tuple[int, ...]]) -> None:
    q, k, v = inputs = [torch.randn(2, 9, 3, 4).transpose(1, 2).requires_grad_() for _ in range(3)]
    source = Source(mask=MASKS[mask](), causal=causal)

    def compute() -> list[Tensor]:
        out = attend(q, k, v, source)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    ours, asked = compute(), len(calls)
    assert asked > 2 * 3 * 7
    for one, right in zip(ours, without(compute), strict=True):  # ty: ignore[invalid-argument-type]
        assert not one.isnan().any()
        close(one, right, 1e-5)
    assert len(calls) == asked


@pytest.mark.usefixtures("tiny_tiles")
def test_attention_in_tiles_of_a_longer_memory_and_twice_differentiated() -> None:
    q, k = (torch.randn(2, 3, n, 4, requires_grad=True) for n in (5, 9))
    v = torch.randn(2, 3, 9, 6, requires_grad=True)  # values of another width
    found = []
    for compute in (
        lambda: attend(q, k, v, Source()),
        lambda: (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v,
    ):
        out = compute()
        slope = torch.autograd.grad(out.square().sum(), k, create_graph=True)[0]
        found.append([out, slope, *torch.autograd.grad(slope.square().sum(), [q, k, v])])
    for ours, right in zip(*found, strict=True):
        close(ours, right, 1e-4)


@pytest.mark.usefixtures("tiny_tiles")
def test_the_least_number_hides_less_than_nothing() -> None:
    """A query that sees nothing but padding, marked by the least number, sees that, and nothing of later ones."""
    inputs = [torch.randn(1, 1, 9, 4, requires_grad=True) for _ in range(3)]
    mask = torch.zeros(1, 9).index_fill(1, torch.tensor([0, 1]), torch.finfo(torch.float32).min)
    found = []
    for q, k, v, out in ((*inputs, attend(*inputs, Source(mask=mask, causal=True))), (*inputs, None)):
        if out is None:
            weighed = (q @ k.transpose(-1, -2) / 2 + mask).masked_fill(torch.ones(9, 9).triu(1) > 0, -torch.inf)
            out = weighed.softmax(-1) @ v
        found.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    for ours, right in zip(*found, strict=True):
        close(ours, right, 1e-5)


@pytest.mark.usefixtures("tiny_tiles")
def test_the_gradient_of_attention_in_tiles_is_not_rounded_by_autocast() -> None:
    inputs = [torch.randn(1, 2, 9, 4, requires_grad=True) for _ in range(3)]
    out = attend(*inputs, Source(causal=True))
    exactly = torch.autograd.grad(out.square().sum(), inputs, retain_graph=True)
    loss = out.square().sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = torch.autograd.grad(loss, inputs)
    assert all(map(torch.equal, under, exactly))


@pytest.mark.usefixtures("tiny_tiles")
def test_a_causal_query_in_tiles_gets_nothing_of_later_ones() -> None:
    q, k, v = (torch.randn(1, 1, 9, 4) for _ in range(3))
    before = attend(q, k, v, Source(causal=True))
    k[..., 6:, :], v[..., 6:, :] = 1e6, 1e30
    assert torch.equal(attend(q, k, v, Source(causal=True))[..., :6, :], before[..., :6, :])


@pytest.mark.usefixtures("tiny_tiles")
def test_attention_in_tiles_steps_aside(calls: list[tuple[int, ...]]) -> None:
    q, k, v = (torch.randn(1, 2, 9, 4) for _ in range(3))
    learned = torch.zeros(9, 9, requires_grad=True)
    attend(q, k, v, Source(mask=learned)).sum().backward()
    assert learned.grad is not None
    with sdpa_kernel(SDPBackend.MATH):
        attend(q, k, v, Source())
    attend(q.double(), k.double(), v.double(), Source())
    torch.func.vmap(lambda x: attend(x, k, v, Source()))(q.unsqueeze(0))
    assert not calls


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_vocabulary(smoothing: float, calls: list[tuple[int, ...]]) -> None:
    x, weight = torch.randn(12, 8, requires_grad=True), torch.randn(50, 8, requires_grad=True)
    labels = torch.randint(0, 50, (12,))
    labels[3] = -100

    def compute() -> list[Tensor]:
        loss = cross_entropy(x, weight, labels, smoothing, chunk=5)
        return [loss, *torch.autograd.grad(loss, [x, weight])]

    ours, asked = compute(), len(calls)
    assert asked == 9  # three products of three chunks
    for one, right in zip(ours, without(compute), strict=True):  # ty: ignore[invalid-argument-type]
        close(one, right, 1e-5)
    assert len(calls) == asked


@pytest.mark.parametrize(
    "architecture", ["parallel", "rk4:independent=1", "transevolve", "transevolve:random-1", "momentum"]
)
def test_texts_by_matrices_in_order_are_the_same(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odeum.decode.ordered.LEAST_WORK", 1)
    made: list[nn.Module] = []
    make = OrderedMaps.__call__

    def noted(self: OrderedMaps, module: nn.Module) -> Callable[[Tensor], Tensor]:
        made.append(module)
        return make(self, module)

    monkeypatch.setattr(OrderedMaps, "__call__", noted)
    sizes = {"vocabulary": 40, "width": 16, "heads": 2, "depth": 2, "hidden": 32, "length": 64}
    model = build(architecture, "language_small", **sizes).eval()
    ids = torch.randint(0, 40, (5, 3))
    text = generate(model, ids, max_new_tokens=20, temperature=0)
    assert made
    assert torch.equal(text, without(lambda: generate(model, ids, max_new_tokens=20, temperature=0)))  # ty: ignore


def test_translations_by_matrices_in_order_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odeum.decode.ordered.LEAST_WORK", 1)
    sizes = {"vocabulary": 40, "width": 16, "heads": 2, "depth": 2, "hidden": 32, "length": 64}
    model = build("post-norm", "translation_small", **sizes).eval()
    sources = torch.randint(3, 40, (3, 18))
    found = beam_search(model, sources, beam=3, max_length=12)
    assert found == without(lambda: beam_search(model, sources, beam=3, max_length=12))


def test_a_model_that_was_trained_meanwhile_is_decoded_with_its_new_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put in order lives no longer than the call."""
    monkeypatch.setattr("odeum.decode.ordered.LEAST_WORK", 1)
    sizes = {"vocabulary": 40, "width": 16, "heads": 2, "depth": 2, "hidden": 32, "length": 64}
    model = build("parallel", "language_small", **sizes).eval()
    ids = torch.randint(0, 40, (5, 3))
    generate(model, ids, max_new_tokens=20, temperature=0)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    fresh = copy.deepcopy(model)
    assert torch.equal(
        generate(model, ids, max_new_tokens=20, temperature=0), generate(fresh, ids, max_new_tokens=20, temperature=0)
    )


def test_it_is_known_by_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for about, faster in (
        ({"avx512_f": True, "cpu_name": "AMD EPYC 9654 96-Core Processor"}, True),
        ({"avx512_f": False, "cpu_name": "AMD EPYC 7763 64-Core Processor"}, False),
        ({"avx512_f": True, "cpu_name": "Intel(R) Xeon(R) Platinum 8481C"}, False),
        ({"architecture": "aarch64"}, False),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(torch.cpu, "get_capabilities", lambda about=about: about)
            assert products.faster_here.__wrapped__() is (faster and torch.backends.mkl.is_available())


def test_small_products_and_other_numbers_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(8, 6)
    assert library(1 << 30, x) is OneDnn
    monkeypatch.setattr(products, "LEAST_PRODUCT", 1 << 21)
    assert library((1 << 21) - 1, x) is Torchs and library(1 << 21, x) is OneDnn
    torch.set_num_threads(2)
    assert library(1 << 21, x) is Torchs and library(1 << 22, x) is OneDnn
    assert library(1 << 30, x.double()) is Torchs and library(1 << 30, x.to("meta")) is Torchs
    close(linear_map(x, torch.ones(10, 6)), x.sum(1, keepdim=True).expand(8, 10), 1e-5)
