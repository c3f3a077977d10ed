"""What every architecture keeps, Odeum's own and a plugin's alike: a contract that a test can run line by line.

    @pytest.mark.parametrize("line", odeum.testing.CONTRACT)
    def test_pull(line):
        odeum.testing.check(line, "pull:strength=0.3")

The models are tiny and the checks exact where the mathematics is.
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
"""why an adaptive solver is not asked what it cannot keep; see docs/architecture.md"""


class ContractBroken(AssertionError):
    """Which line does not hold, of which architecture, and how that shows."""


class NotCausal(OdeumError):
    """An architecture that no language model can be built of; it says why."""


def check(line: str, architecture: str | Architecture) -> str | None:
    """Try one line of the contract; None if it holds, or a reason why it is not asked of this architecture.

    Raises `ContractBroken`, or what the architecture itself raises. Random numbers of the caller stay as they are.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return CONTRACT[choose(line, CONTRACT, "line of the contract")](architecture)
        except NotCausal as error:
            return str(error)


def every_weight_learns(architecture: str | Architecture) -> None:
    """No weight is without a gradient, in an encoder or, where it can be one, in a decoder."""
    for cross in (False, True):
        try:
            model = stirred(stack(architecture, Shape(**TINY), cross)).double()
        except OdeumError:
            if cross:
                return
            raise
        x, memory = torch.randn(3, 5, 16).double(), torch.randn(3, 4, 16).double() if cross else None
        out = model(x, Context(own=Source(causal=cross), other=Source(memory=memory)))
        (out * torch.randn_like(out)).sum().backward()
        still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
        _hold(not still, f"{still[:1]} has no gradient in {'a decoder' if cross else 'an encoder'}")


def looks_back_only(architecture: str | Architecture) -> str | None:
    """In a causal model a later token changes nothing before it."""
    model = causal(architecture)
    if adapts(model):
        return ADAPTS
    ids = torch.randint(0, 19, (2, 9))
    other = torch.cat((ids[:, :5], (ids[:, 5:] + 1) % 19), dim=1)
    _close(model(ids).logits[:, :5], model(other).logits[:, :5], "later tokens change what stands before them")
    return None


def padding_changes_nothing(architecture: str | Architecture) -> str | None:
    """Neither to the left of a prompt nor to the right of a text."""
    model = causal(architecture)
    if adapts(model):
        return ADAPTS
    ids, mask = torch.randint(0, 19, (2, 9)), torch.ones(2, 9)
    mask[0, :4] = 0
    _close(model(ids, mask).logits[:1, 4:], model(ids[:1, 4:]).logits, "padding on the left of a prompt changes it")
    texts = stirred(build(architecture, "classification_small", **{**TEXT, "classes": 3})).double().eval()
    mask = mask.flip(-1)
    _close(texts(ids, mask).logits[:1], texts(ids[:1, :5]).logits, "padding on the right of a text changes it")
    return None


def decodes_with_a_cache(architecture: str | Architecture) -> str | None:
    """What is computed of the newest positions alone is what the whole gives."""
    model, cache = causal(architecture), Cache()
    if not cacheable(model):
        return "it does not say that new positions alone are enough, so decoding reads the whole prefix"
    ids = torch.randint(0, 19, (2, 9))
    whole = model(ids).logits
    for start, end in ((0, 5), (5, 6), (6, 9)):
        _close(model(ids[:, start:end], cache=cache).logits, whole[:, start:end], "a cached pass gives something else")
    found = [generate(model, ids, max_new_tokens=4, temperature=0, use_cache=cached) for cached in (True, False)]
    _hold(torch.equal(*found), "greedy text differs with a cache")
    return None


def generates_under_transformers(architecture: str | Architecture) -> str | None:
    """With and without a cache, the text is ours."""
    if find_spec("transformers") is None:
        return "transformers is not installed"
    from odeum.hf import OdeumForCausalLM

    model = causal(architecture)
    ids = torch.randint(1, 19, (2, 6))
    ours = generate(model, ids, max_new_tokens=4, temperature=0)
    theirs = OdeumForCausalLM.wrap(model)
    for cached in (True, False) if cacheable(model) else (False,):
        found = theirs.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0, use_cache=cached)
        _hold(torch.equal(found, ours), f"generate of transformers differs {'with' if cached else 'without'} a cache")
    return None


def compiles(architecture: str | Architecture) -> None:
    """torch.compile gives the same output and gradients."""
    model = stirred(stack(architecture, Shape(**TINY))).double()
    x = torch.randn(2, 5, 16).double()
    torch.compiler.reset()
    found = []
    for called in (model, torch.compile(model, backend="eager")):
        model.zero_grad()
        out = called(x)
        out.pow(3).sum().backward()
        found.append([out.detach(), *(p.grad for p in model.parameters())])
    for one, other in zip(*found, strict=True):
        _close(one, other, "the compiled model differs")


def is_saved_and_loaded(architecture: str | Architecture) -> None:
    """A directory holds all of it: words, options, weights."""
    model = stirred(build(architecture, "classification_small", **TEXT)).eval()
    ids = torch.randint(0, 19, (2, 9))
    with tempfile.TemporaryDirectory() as directory:
        save_model(Path(directory), model)
        again = load_model(directory)
    assert isinstance(again, OdeumModel)
    _hold(again.architecture == model.architecture, f"it is read back as {again.architecture}")
    _hold(torch.equal(again(ids).logits, model(ids).logits), "the model that was saved gives something else")


def trains_on_digits(architecture: str | Architecture) -> None:
    """Some steps on some images lower their loss."""
    task = open_task("digits")
    settings = {name: getattr(task.model(), name) for name in ("image_size", "patch_size", "channels", "classes")}
    _trains(build(architecture, "vit_8", **{**TINY, **settings}), next(task.batches(0, 32, 0)))


def trains_on_text(architecture: str | Architecture) -> None:
    """Some steps on a text lower its loss."""
    told = "to move particles is to integrate what moves them, one layer after the other; "
    letters = sorted(set(told))
    ids = torch.tensor([[letters.index(letter) for letter in told[i:] + told[:i]] for i in range(8)])
    _trains(
        language(architecture, vocabulary=len(letters), length=ids.shape[1]),
        {"input_ids": ids[:, :-1], "labels": ids[:, 1:]},
    )


def takes_plain_weights(architecture: str | Architecture) -> str | None:
    """Where roles agree with those of the plain stack, its weights are taken over, each to its own place; a conversion
    leaves none of its roles new."""
    model, plain = (stack(name, Shape(**TINY)) for name in (architecture, "sequential"))
    given, own = by_role(stirred(plain)), by_role(model)
    common = [name for name, weight in given.items() if name in own and own[name].shape == weight.shape]
    if not common:
        return "it has no weight whose role the plain stack knows"
    model.load_state_dict({name: given[name] for name in common}, strict=False)
    loaded = by_role(model)
    wrong = [name for name in common if not torch.equal(loaded[name], given[name])]
    _hold(not wrong, f"{wrong[:1]} is not what was loaded")
    source = stirred(build("sequential", "classification_small", **TEXT))
    found = convert(source, parse(architecture) if isinstance(architecture, str) else architecture)
    known, given = (
        {_place(name) for name in by_role(source)},
        {_place(name) for name in (*found.copied, *found.derived)},
    )
    new = sorted({_place(name) for name in found.new} & known - given)
    _hold(not new, f"{new[:1]} of a plain stack is not converted")
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
"""the lines by name; each takes a spelling, or a dataclass"""


def causal(architecture: str | Architecture) -> LanguageModel:
    """A small causal model in double precision with weights that are not those of the start."""
    return stirred(language(architecture)).double().eval()


def language(architecture: str | Architecture, **changes: Any) -> LanguageModel:
    """A small causal model."""
    stack(architecture, Shape(**TINY))  # what cannot be built at all is no question of causality
    try:
        return build(architecture, "language_small", **(TEXT | changes))
    except OdeumError as error:
        raise NotCausal(str(error)) from None


def stirred(model: Any) -> Any:
    """The model with every weight moved a little: what starts at zero shows nothing yet."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) / 10)
    return model


def adapts(model: nn.Module) -> bool:
    """Whether its steps are chosen by its data."""
    return any(isinstance(part, Adaptive) for part in model.modules())


def _place(name: str) -> str:
    """What a weight is, in whichever layer or at whichever knot."""
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
    _hold(losses[-1] < 0.95 * losses[0], f"the loss goes from {losses[0]:.4g} to {losses[-1]:.4g} in {steps} steps")


def _hold(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ContractBroken(otherwise)


def _close(one: Tensor, other: Tensor, otherwise: str) -> None:
    far = (one - other).abs().max().item()
    _hold(far <= 1e-9, f"{otherwise}, by {far:.2g}")
