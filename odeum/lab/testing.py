"""The contract that every architecture keeps, built in or from a plugin, line by line for tests.

    @pytest.mark.parametrize("line", odeum.testing.CONTRACT)
    def test_pull(line):
        odeum.testing.check(line, "pull:strength=0.3")

Models are tiny, and checks are exact where the mathematics is.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from odeum.architectures import stack
from odeum.decode import generate
from odeum.decode.common import cacheable
from odeum.errors import OdeumError, choose
from odeum.fields.base import Context, Source
from odeum.fields.cache import Cache
from odeum.fields.roles import by_role
from odeum.integrators import Adaptive
from odeum.lab.tasks import open_task
from odeum.lab.train.conversion import convert
from odeum.lab.train.optimization import make_optimizer
from odeum.lab.train.settings import Training
from odeum.models import LanguageModel, OdeumModel, build
from odeum.models.saved import load_model, save_model
from odeum.models.settings import Shape
from odeum.registry.names import Architecture
from odeum.registry.spelling import parse

TINY: dict[str, Any] = {"width": 16, "heads": 2, "depth": 4, "hidden": 24}
TEXT: dict[str, Any] = {**TINY, "vocabulary": 19, "length": 24}
ADAPTS = "its steps depend on the data: on later tokens, and on padding"
"""reason for which an adaptive solver is exempt from causality and padding"""


class ContractBroken(AssertionError):
    """A line of the contract does not hold; the message says how that shows."""


class NotCausal(OdeumError):
    """No language model can be built with the architecture; the message says why."""


def check(line: str, architecture: str | Architecture) -> str | None:
    """Check one line of the contract; None if it holds, or the reason why it does not apply to this architecture.

    Raises `ContractBroken`, or errors of the architecture. The random state of the caller is restored.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return CONTRACT[choose(line, CONTRACT, "line of the contract")](architecture)
        except NotCausal as error:
            return str(error)


def every_weight_learns(architecture: str | Architecture) -> None:
    """Every weight gets a gradient, in an encoder and, if possible, in a decoder."""
    for cross in (False, True):
        try:
            model = perturbed(stack(architecture, Shape(**TINY), cross)).double()
        except OdeumError:
            if cross:
                return
            raise
        x, memory = torch.randn(3, 5, 16).double(), torch.randn(3, 4, 16).double() if cross else None
        out = model(x, Context(own=Source(causal=cross), other=Source(memory=memory)))
        (out * torch.randn_like(out)).sum().backward()
        missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
        _require(not missing, f"{missing[:1]} has no gradient in {'a decoder' if cross else 'an encoder'}")


def looks_back_only(architecture: str | Architecture) -> str | None:
    """In a causal model a later token does not change earlier outputs."""
    model = causal(architecture)
    if adapts(model):
        return ADAPTS
    ids = torch.randint(0, 19, (2, 9))
    other = torch.cat((ids[:, :5], (ids[:, 5:] + 1) % 19), dim=1)
    _close(model(ids).logits[:, :5], model(other).logits[:, :5], "later tokens change earlier outputs")
    return None


def padding_changes_nothing(architecture: str | Architecture) -> str | None:
    """Padding on the left of a prompt or the right of a text does not change outputs."""
    model = causal(architecture)
    if adapts(model):
        return ADAPTS
    ids, mask = torch.randint(0, 19, (2, 9)), torch.ones(2, 9)
    mask[0, :4] = 0
    _close(model(ids, mask).logits[:1, 4:], model(ids[:1, 4:]).logits, "padding on the left of a prompt changes it")
    texts = perturbed(build(architecture, "classification_small", **{**TEXT, "classes": 3})).double().eval()
    mask = mask.flip(-1)
    _close(texts(ids, mask).logits[:1], texts(ids[:1, :5]).logits, "padding on the right of a text changes it")
    return None


def decodes_with_a_cache(architecture: str | Architecture) -> str | None:
    """Outputs of new positions with a cache equal those of the whole sequence."""
    model, cache = causal(architecture), Cache()
    if not cacheable(model):
        return "it has no cache, so decoding reads the whole prefix"
    ids = torch.randint(0, 19, (2, 9))
    whole = model(ids).logits
    for start, end in ((0, 5), (5, 6), (6, 9)):
        _close(model(ids[:, start:end], cache=cache).logits, whole[:, start:end], "a cached pass has other outputs")
    texts = [generate(model, ids, max_new_tokens=4, temperature=0, use_cache=cached) for cached in (True, False)]
    _require(torch.equal(*texts), "greedy text differs with a cache")
    return None


def generates_under_transformers(architecture: str | Architecture) -> str | None:
    """`generate` of transformers gives the same text, with and without a cache."""
    if find_spec("transformers") is None:
        return "transformers is not installed"
    from odeum.hf import OdeumForCausalLM

    model = causal(architecture)
    ids = torch.randint(1, 19, (2, 6))
    ours = generate(model, ids, max_new_tokens=4, temperature=0)
    theirs = OdeumForCausalLM.wrap(model)
    for cached in (True, False) if cacheable(model) else (False,):
        text = theirs.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0, use_cache=cached)
        _require(torch.equal(text, ours), f"generate of transformers differs {'with' if cached else 'without'} a cache")
    return None


def compiles(architecture: str | Architecture) -> None:
    """torch.compile gives the same outputs and gradients."""
    model = perturbed(stack(architecture, Shape(**TINY))).double()
    x = torch.randn(2, 5, 16).double()
    torch.compiler.reset()
    outputs = []
    for called in (model, torch.compile(model, backend="eager")):
        model.zero_grad()
        out = called(x)
        out.pow(3).sum().backward()
        outputs.append([out.detach(), *(p.grad for p in model.parameters())])
    for one, other in zip(*outputs, strict=True):
        _close(one, other, "the compiled model differs")


def is_saved_and_loaded(architecture: str | Architecture) -> None:
    """Saving and loading restores the name, options and weights."""
    model = perturbed(build(architecture, "classification_small", **TEXT)).eval()
    ids = torch.randint(0, 19, (2, 9))
    with tempfile.TemporaryDirectory() as directory:
        save_model(Path(directory), model)
        again = load_model(directory)
    assert isinstance(again, OdeumModel)
    _require(again.architecture == model.architecture, f"it is read back as {again.architecture}")
    _require(torch.equal(again(ids).logits, model(ids).logits), "the loaded model has other outputs")


def trains_on_digits(architecture: str | Architecture) -> None:
    """A few steps on a batch of images lower its loss."""
    task = open_task("digits")
    settings = {name: getattr(task.model(), name) for name in ("image_size", "patch_size", "channels", "classes")}
    _trains(build(architecture, "vit_8", **{**TINY, **settings}), next(task.batches(0, 32, 0)))


def trains_on_text(architecture: str | Architecture) -> None:
    """A few steps on a text lower its loss."""
    text = "to move particles is to integrate what moves them, one layer after the other; "
    letters = sorted(set(text))
    ids = torch.tensor([[letters.index(letter) for letter in text[i:] + text[:i]] for i in range(8)])
    _trains(
        language(architecture, vocabulary=len(letters), length=ids.shape[1]),
        {"input_ids": ids[:, :-1], "labels": ids[:, 1:]},
    )


def takes_plain_weights(architecture: str | Architecture) -> str | None:
    """Weights of the sequential stack are loaded by role, and a conversion leaves no common role new."""
    model, plain = (stack(name, Shape(**TINY)) for name in (architecture, "sequential"))
    plain_weights, weights = by_role(perturbed(plain)), by_role(model)
    common = [name for name, weight in plain_weights.items() if name in weights and weights[name].shape == weight.shape]
    if not common:
        return "it has no role in common with the sequential stack"
    model.load_state_dict({name: plain_weights[name] for name in common}, strict=False)
    loaded = by_role(model)
    wrong = [name for name in common if not torch.equal(loaded[name], plain_weights[name])]
    _require(not wrong, f"{wrong[:1]} is not what was loaded")
    source = perturbed(build("sequential", "classification_small", **TEXT))
    converted = convert(source, parse(architecture) if isinstance(architecture, str) else architecture)
    known, plain_weights = (
        {_place(name) for name in by_role(source)},
        {_place(name) for name in (*converted.copied, *converted.derived)},
    )
    new = sorted({_place(name) for name in converted.new} & known - plain_weights)
    _require(not new, f"{new[:1]} of a sequential stack is not converted")
    return None


CONTRACT: dict[str, Callable[[str | Architecture], str | None]] = {
    check.__name__.replace("_", " "): check
    for check in (
        every_weight_learns,
        looks_back_only,
        padding_changes_nothing,
        decodes_with_a_cache,
        generates_under_transformers,
        compiles,
        is_saved_and_loaded,
        trains_on_digits,
        trains_on_text,
        takes_plain_weights,
    )
}
"""lines by name; each takes a spelling or a dataclass"""


def causal(architecture: str | Architecture) -> LanguageModel:
    """A small causal model in double precision with perturbed weights."""
    return perturbed(language(architecture)).double().eval()


def language(architecture: str | Architecture, **changes: Any) -> LanguageModel:
    """A small causal model."""
    stack(architecture, Shape(**TINY))  # raises if it cannot be built at all
    try:
        return build(architecture, "language_small", **(TEXT | changes))
    except OdeumError as error:
        raise NotCausal(str(error)) from None


def perturbed(model: Any) -> Any:
    """The model with random perturbations of all weights, so that no weight is zero."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) / 10)
    return model


def adapts(model: nn.Module) -> bool:
    """Whether the model has an adaptive solver."""
    return any(isinstance(part, Adaptive) for part in model.modules())


def _place(name: str) -> str:
    """The role of a weight without its layer or knot."""
    return re.sub(r"(layers|knots)\.\d+\.", "", name)


def _trains(model: Any, batch: dict[str, Tensor], steps: int = 12) -> None:
    optimizer = make_optimizer(model, Training(learning_rate=3e-3))
    losses = []
    for _ in range(steps):
        loss = model.train()(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    _require(losses[-1] < 0.95 * losses[0], f"the loss goes from {losses[0]:.4g} to {losses[-1]:.4g} in {steps} steps")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ContractBroken(otherwise)


def _close(one: Tensor, other: Tensor, otherwise: str) -> None:
    far = (one - other).abs().max().item()
    _require(far <= 1e-9, f"{otherwise}, by {far:.2g}")
