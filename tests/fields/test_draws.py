"""Initial weights are keyed by role: architectures of one seed share every draw that means the same."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from registries import kept_registries
from scripts import load_script
from torch import Tensor, nn

import odeum
from odeum import Context, Decoder, Encoder, Field, Shape, Stepped, build, draws, register
from odeum.architectures import stack
from odeum.draws import drawing, key_draws
from odeum.errors import OdeumError
from odeum.fields import CrossAttention, FeedForward, SelfAttention
from odeum.fields.roles import by_role
from odeum.models import OdeumModel, redraw
from odeum.models.embedding import AdaptiveEmbedding, TiedEmbedding
from odeum.models.settings import Classification, Language, MaskedLanguage, Translation, Vision
from odeum.registry.names import ARCHITECTURES

VISION = Vision(image_size=8, patch_size=4, channels=1, classes=3, width=16, heads=2, depth=4)
TEXT = {"vocabulary": 23, "length": 9, "width": 16, "heads": 2, "depth": 2}
BUILT_IN = [name for name, entry in ARCHITECTURES.entries.items() if entry.module.startswith("odeum.")]
OTHERS = (
    "parallel:independent=2",
    "sequential:independent=1",
    "parallel*3+rk4*1",
    "hyper:streams=7",
    "sequential:weights=knots,knots=4,between=constant",
    "sequential:weights=hyper",
    "sequential:weights=adaln",
    "transevolve:feedforward=full",
    "looped:core=1",
    "rk4:gradient=checkpointed",
)
LIKE_ORDINALS = {"sandwich": "its feed-forwards are counted by themselves, as the last layers have no attention"}


def drawn(architecture: str, settings: Any = VISION, seed: int = 3) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return by_role(build(architecture, settings))


def random_numbers(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those that are not constant: norms and biases begin at ones and zeros."""
    return {name: x for name, x in weights.items() if x.is_floating_point() and x.numel() > 1 and x.std() > 0}


def canonical(name: str) -> str:
    """The role of a weight, whichever container its layer lies in: a knot k of a timed field is layer k."""
    parts = name.split(".")
    if "knots" in parts:
        at = parts.index("knots")
        return ".".join(["stack", "layers", parts[at + 1], parts[3], *parts[at + 2 :]])
    return name


@pytest.mark.parametrize("architecture", [*BUILT_IN, *OTHERS])
def test_one_seed_gives_all_architectures_the_weights_that_mean_the_same(architecture: str) -> None:
    reference, mine = random_numbers(drawn("sequential")), random_numbers(drawn(architecture))
    shared = {canonical(name): x for name, x in mine.items() if canonical(name) in reference}
    equal = {name for name, x in shared.items() if torch.equal(x, reference[name])}
    assert {"patch.weight", "position", "head.weight"} <= equal
    if architecture in LIKE_ORDINALS:
        assert {name for name in shared if "attention" in name} <= equal
    elif architecture == "sequential:weights=hyper":  # what its network adds is scaled down
        assert {name for name in shared if ".layers.0." in name} <= equal
    else:
        assert equal == shared.keys()
    if not architecture.startswith("transevolve"):
        assert "stack.layers.0.attention.qkv.weight" in equal


def test_ordinals_count_each_role_by_itself() -> None:
    """The j-th feed-forward of sandwich and of transevolve is the j-th of the sequential layers."""
    plain = drawn("sequential")
    for architecture, names in {
        "sandwich:coefficient=2": ["stack.layers.2", "stack.layers.3", "stack.layers.4", "stack.layers.5"],
        "transevolve:feedforward=full,blocks=2": [f"stack.layers.{i}.layers.{j}" for i in range(2) for j in range(2)],
    }.items():
        mine = drawn(architecture)
        for layer, name in enumerate(names):
            weight = mine[f"{name}.feedforward.up.weight"]
            assert torch.equal(weight, plain[f"stack.layers.{layer}.feedforward.up.weight"])


def test_transevolve_shares_its_output_maps() -> None:
    mine, plain = drawn("transevolve:blocks=1"), drawn("sequential")
    for layer in range(4):
        weight = mine[f"stack.layers.0.layers.{layer}.attention.out.weight"]
        assert torch.equal(weight, plain[f"stack.layers.{layer}.attention.out.weight"])


@pytest.mark.parametrize(
    "settings",
    [
        VISION,
        Vision(**{**VISION.__dict__, "stem": "convolution", "pooling": "mean"}),
        Language(**TEXT),
        Language(**TEXT, embedding="adaptive"),
        MaskedLanguage(**TEXT),
        Classification(**TEXT, classes=4),
        Translation(**TEXT),
        Translation(**TEXT, decoder="macaron", decoder_depth=1),
    ],
    ids=lambda settings: type(settings).__name__,
)
def test_every_kind_of_model_shares_what_stands_around_its_stack(settings: Any) -> None:
    models = [random_numbers(drawn(name, settings)) for name in ("sequential", "ode-transformer", "macaron")]
    outside = [name for name in models[0] if not name.startswith(("stack", "encoder", "decoder"))]
    attention = [name for name in models[0] if ".attention." in name or ".cross." in name]
    assert outside
    assert attention
    for name in outside + attention:
        assert torch.equal(models[0][name], models[1][name])
        assert torch.equal(models[0][name], models[2][name])


def test_no_two_draws_of_a_model_are_equal() -> None:
    numbers = random_numbers(drawn("ode-transformer", Translation(**TEXT)))
    firsts = [tuple(x.flatten()[:2].tolist()) for x in numbers.values()]
    scaled = [tuple((x.flatten()[:2] / x.flatten()[2]).tolist()) for x in numbers.values()]
    assert len(set(firsts)) == len(firsts)
    assert len(set(scaled)) == len(scaled)


def test_seeds_differ_and_repeat() -> None:
    first, again, other = drawn("rk4"), drawn("rk4"), drawn("rk4", seed=4)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(x, other[name]) for name, x in random_numbers(first).items())


def test_more_depth_streams_or_stages_change_no_other_draw() -> None:
    small = drawn("hyper:streams=2")
    for architecture, depth in (("hyper:streams=6", 4), ("ode-transformer:method=rk4", 4), ("sequential", 7)):
        large = drawn(architecture, Vision(**{**VISION.__dict__, "depth": depth}))
        for name, x in random_numbers(small).items():
            if ".parts." not in name:
                assert torch.equal(x, large[name])


def test_maps_without_biases_are_the_same_maps() -> None:
    with_biases = drawn("sequential")
    without = drawn("sequential", Vision(**{**VISION.__dict__, "bias": False}))
    gated = drawn("sequential", Vision(**{**VISION.__dict__, "activation": "swiglu"}))
    for role in ("attention.qkv", "attention.out", "feedforward.up", "feedforward.down"):
        name = f"stack.layers.1.{role}.weight"
        assert torch.equal(without[name], with_biases[name])
        assert torch.equal(gated[name], with_biases[name]) == (role != "feedforward.up")


@pytest.mark.parametrize(
    "make", [lambda: build("rk4", VISION), lambda: Encoder(16, 2, 2), lambda: stack("rk4", VISION)]
)
def test_building_takes_one_number_from_torch(make: Any) -> None:
    torch.manual_seed(0)
    torch.randint(2**63 - 1, ())
    after = torch.rand(3)
    for place in ("cpu", "meta"):
        torch.manual_seed(0)
        with torch.device(place):
            make()
        assert torch.equal(torch.rand(3), after)


def test_a_build_that_fails_leaves_torch_as_one_that_does_not() -> None:
    torch.manual_seed(0)
    with pytest.raises(OdeumError), key_draws():
        torch.rand(5)
        raise OdeumError("no")
    after = torch.rand(3)
    torch.manual_seed(0)
    build("rk4", VISION)
    assert torch.equal(torch.rand(3), after)
    with drawing("anything"):  # outside of a build: torch's generator itself
        torch.manual_seed(0)
    assert torch.equal(torch.rand(3), (torch.manual_seed(0), torch.rand(3))[1])


def test_threads_that_build_do_not_disturb_each_other() -> None:
    torch.manual_seed(0)
    alone = [random_numbers(by_role(build("macaron", VISION))) for _ in range(2)]
    made: list[Any] = []
    torch.manual_seed(0)
    threads = [threading.Thread(target=lambda: made.append(build("macaron", VISION))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    name = "stack.layers.3.attention.qkv.weight"
    assert {by_role(model)[name].sum().item() for model in made} == {weights[name].sum().item() for weights in alone}


def test_a_thread_beside_a_build_is_not_in_its_scope() -> None:
    """A module that another thread constructs while a model is built takes no ordinal of that model."""
    with key_draws(7), draws.drawing_stack():
        scope = draws._scopes.get()
        assert scope is not None
        SelfAttention(16, 2)
        before = dict(scope.numbers)
        thread = threading.Thread(target=lambda: SelfAttention(16, 2))
        thread.start()
        thread.join()
        assert before and dict(scope.numbers) == before


def test_drop_ins_share_their_draws_with_models_of_the_same_key() -> None:
    torch.manual_seed(5)
    encoder = by_role(Encoder(16, 2, 4, "macaron"))
    torch.manual_seed(5)
    decoder = by_role(Decoder(16, 2, 4, "parallel"))
    torch.manual_seed(5)
    model = by_role(build("rk4", VISION))
    for layer in range(4):
        name = f"stack.layers.{layer}.attention.qkv.weight"
        assert torch.equal(encoder[name], decoder[name])
        assert torch.equal(encoder[name], model[name])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_keyed_too(dtype: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        one, other = drawn("ode-transformer"), drawn("macaron")
    finally:
        torch.set_default_dtype(before)
    name = "stack.layers.2.attention.qkv.weight"
    assert one[name].dtype == dtype
    assert torch.equal(one[name], other[name])
    assert torch.equal(one["head.weight"], other["head.weight"])


# distributions

PLAIN = {
    "attention.qkv": lambda: SelfAttention(16, 2).qkv,
    "attention.out": lambda: SelfAttention(16, 2).out,
    "cross.q": lambda: CrossAttention(16, 2).q,
    "cross.kv": lambda: CrossAttention(16, 2).kv,
    "feedforward.up": lambda: FeedForward(16).up,
    "feedforward.down": lambda: FeedForward(16).down,
    "embedding": lambda: TiedEmbedding(23, 16),
}


@cache
def _translation(seed: int) -> dict[str, Tensor]:
    return drawn("rk4", Translation(**TEXT), seed)


@pytest.mark.parametrize("role", PLAIN)
def test_distributions_are_those_of_the_constructors(role: str) -> None:
    """Moments and a Kolmogorov–Smirnov test against draws by torch's generator in construction order."""
    from scipy.stats import ks_2samp

    count = 40
    keyed, plain = [], []
    for seed in range(count):
        name = "embedding.weight" if role == "embedding" else f"decoder.layers.1.{role}.weight"
        keyed.append(_translation(seed)[name].detach().flatten())
        torch.manual_seed(10_000 + seed)
        plain.append(PLAIN[role]().weight.detach().flatten())
    a, b = torch.cat(keyed), torch.cat(plain)
    error = b.std() / b.numel() ** 0.5
    assert abs(a.mean()) < 4 * error
    assert abs(a.std() / b.std() - 1) < 4 / (2 * b.numel()) ** 0.5
    assert ks_2samp(a.numpy(), b.numpy()).pvalue > 0.001
    # Over seeds, single weights are not correlated with each other.
    table = torch.stack(keyed)[:, :50]
    correlation = torch.corrcoef(table.T).fill_diagonal_(0.0)
    assert correlation.pow(2).mean() < 1.3 / (count - 1)


def test_adaptive_embeddings_are_keyed() -> None:
    with key_draws(7):
        first = AdaptiveEmbedding(64, 16)
    with key_draws(7):
        torch.rand(9)
        second = AdaptiveEmbedding(64, 16)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


# plugins


class Mixer(Field):
    """Another's field: plain torch, and a parameter without any initialiser's name."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn(3, width))
        nn.init.zeros_(self.map.bias)

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.map(x) + self.table.sum(0)


class Larger(Mixer):
    """A subclass whose base class draws first."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.more = nn.Linear(width, width)


def test_fields_of_plugins_are_keyed_by_their_place() -> None:
    with kept_registries():
        from dataclasses import dataclass

        @register.architecture("mixing")
        @dataclass(frozen=True)
        class Mixing(Stepped):
            """Attention and another's field."""

            first: bool = True

            def field(self, shape: Shape) -> Field:
                if self.first:
                    attention, mixer = SelfAttention(shape.width, shape.heads), Larger(shape.width)
                else:
                    mixer, attention = Larger(shape.width), SelfAttention(shape.width, shape.heads)
                return odeum.fields.Sum(attention, mixer)

        one, other, plain = drawn("mixing"), drawn("mixing:first=false"), drawn("sequential")
        for layer in range(4):
            qkv = f"stack.layers.{layer}.attention.qkv.weight"
            assert torch.equal(one[qkv], plain[qkv])
            assert torch.equal(other[qkv], plain[qkv])
        assert random_numbers(one).keys() == random_numbers(other).keys()
        assert all(torch.equal(x, other[name]) for name, x in one.items())
        tables = [x for name, x in one.items() if name.endswith("table")]
        assert len({x.sum().item() for x in tables}) == 4


# models without numbers


@pytest.mark.parametrize("architecture", ["sequential", "transevolve", "mhc", "sequential:weights=hyper"])
def test_a_model_from_the_meta_device_gets_the_same_weights(architecture: str) -> None:
    torch.manual_seed(2)
    with torch.device("meta"):
        model: Any = build(architecture, VISION)
    model.to_empty(device="cpu")
    torch.manual_seed(99)
    redraw(model)
    reference = build_with(2, architecture)
    for (name, x), (_, y) in zip(_all(model), _all(reference), strict=True):
        assert torch.equal(x, y), name


def build_with(seed: int, architecture: str) -> OdeumModel:
    torch.manual_seed(seed)
    model = build(architecture, VISION)
    assert isinstance(model, OdeumModel)
    return model


def _all(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def test_redraw_keeps_the_precision_and_knows_drop_ins() -> None:
    torch.manual_seed(2)
    encoder = Encoder(16, 2, 2, "macaron")
    before = {name: x.clone() for name, x in encoder.named_parameters()}
    with torch.no_grad():
        for x in encoder.parameters():
            x.zero_()
    redraw(encoder)
    assert all(torch.equal(x, before[name]) for name, x in encoder.named_parameters())
    with pytest.raises(OdeumError, match="no seed to draw its weights from again"):
        redraw(type(build_with(0, "rk4"))(VISION, odeum.Layered()))


SHARDED = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from odeum.flow import Flow
from odeum.models import build, redraw
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(4)
with torch.device("meta"):
    model = build("macaron", "deit_tiny", width=16, heads=2, depth=2, image_size=8, patch_size=4)
for module in model.modules():
    if isinstance(module, Flow):
        fully_shard(module)
fully_shard(model)
model.to_empty(device="cpu")
redraw(model)
torch.manual_seed(4)
whole = build("macaron", "deit_tiny", width=16, heads=2, depth=2, image_size=8, patch_size=4)
for (name, a), b in zip(model.named_parameters(), whole.parameters(), strict=True):
    assert type(a).__name__ == "DTensor" and torch.equal(a.full_tensor(), b), name
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_sharded_models_get_the_same_weights() -> None:
    run = subprocess.run([sys.executable, "-c", SHARDED], capture_output=True, text=True, timeout=300)
    assert not run.returncode, run.stderr


def test_models_of_transformers_begin_with_the_weights_of_build() -> None:
    transformers = pytest.importorskip("transformers")
    import odeum.hf

    torch.manual_seed(6)
    plain = build("macaron", Language(**TEXT))
    config = odeum.hf.OdeumConfig.of(plain)
    torch.manual_seed(6)
    ours = transformers.AutoModelForCausalLM.from_config(config)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), ours.odeum.parameters(), strict=True))


def test_the_page_says_what_was_measured() -> None:
    root, benchmark = Path(__file__).parents[2], load_script("benchmarks/pairing.py")
    found = json.loads((root / "benchmarks" / "results" / "pairing.json").read_text(encoding="utf-8"))
    assert benchmark.table(found["losses"], list(found["pairing"])) == found["pairing"]
    assert benchmark.show(found) in (root / "docs" / "statistics.md").read_text(encoding="utf-8")
