"""Depth that loops: what it is for one repeat, for many, with gradients cut, and when states come to rest."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import run
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from odeum import Encoder, build, set_repeats, set_solver
from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.fields import Cache, Context, Source
from odeum.fields.roles import by_role
from odeum.integrators import FixedSteps, Leapfrog
from odeum.lab.cli import main
from odeum.looping import Looped, StableInjection, mean_repeats
from odeum.models.settings import Shape

pytestmark = pytest.mark.usefixtures("float64")

SHAPE = Shape(width=8, heads=2, depth=4, hidden=16)
TEXT: dict[str, Any] = {"vocabulary": 17, "width": 8, "heads": 2, "depth": 4, "hidden": 16}
INJECTIONS = ["add", "concat", "stable", "none"]


def loop(spelling: str, shape: Shape = SHAPE, cross: bool = False) -> Looped:
    made = stack(spelling, shape, cross)
    assert isinstance(made, Looped)
    return made


def gradients(model: nn.Module, x: Tensor) -> dict[str, Tensor | None]:
    model.zero_grad()
    model(x, Context(own=Source(causal=True))).pow(3).sum().backward()
    return {name: p.grad for name, p in model.named_parameters()}


# ------------------------------------------------------------------------------------------ which stack it is


@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("looped:repeats=1,inject=none", "sequential"),
        ("looped:repeats=1,inject=add,method=rk4,prelude=0,coda=3", "rk4"),
        ("looped:repeats=1,inject=concat,norm=post", "post-norm"),
        ("looped:repeats=1,inject=none,independent=2,gradient=checkpointed", "sequential:independent=2"),
    ],
)
def test_one_repeat_is_the_plain_stack(spelling: str, plain: str, cross: bool) -> None:
    one, other = loop(spelling, cross=cross), stack(plain, SHAPE, cross)
    left = one.load_state_dict(by_role(other), strict=False)
    assert not left.unexpected_keys and left.missing_keys == (["injection.weight"] if "concat" in spelling else [])
    x, context = torch.randn(2, 5, 8), Context(other=Source(memory=torch.randn(2, 3, 8)))
    assert torch.equal(one(x, context), other(x, context))


@pytest.mark.parametrize("rest", ["", ",method=leapfrog", ",method=adams-bashforth,steps=2", ",sharing=cycle"])
def test_repeats_without_injection_are_a_schedule(rest: str) -> None:
    """What a method remembers passes on from repeat to repeat."""
    one = loop(f"looped:prelude=1,coda=1,repeats=2,inject=none{rest}")
    other = stack(f"sequential:schedule=0/1-2/1-2/3{rest}", dataclasses.replace(SHAPE, depth=6))
    one.load_state_dict(by_role(other))
    x = torch.randn(2, 5, 8)
    assert torch.equal(one(x), other(x))
    assert all(map(torch.equal, one.trajectory(x), other.trajectory(x)))  # ty: ignore


@pytest.mark.parametrize("inject", ["add", "concat", "stable"])
def test_repeats_by_hand(inject: str) -> None:
    model, x = loop(f"looped:prelude=1,coda=1,repeats=3,inject={inject},independent=2"), torch.randn(2, 5, 8)
    for weight in model.injection.parameters():
        nn.init.normal_(weight, std=0.3)
    flows: list[Any] = list(model.flows)
    e, s = flows[0](x), torch.zeros_like(x)
    for _ in range(3):
        match model.injection:
            case StableInjection() as stable:
                delta = nn.functional.softplus(stable.step)
                told = stable.norm(e) @ stable.map.view(8, 8).T
                s = torch.exp(-delta * stable.log_rate.exp()) * s + delta * told
            case _ if inject == "add":
                s = s + e
            case joined:
                s = s @ joined.weight[:, :8].T + e @ joined.weight[:, 8:].T
        s = flows[1](flows[0](s))
    torch.testing.assert_close(model(x), model.norm(flows[1](s)), rtol=0, atol=1e-12)  # ty: ignore


def test_a_stable_injection_contracts_whatever_is_learned() -> None:
    """Without a core it comes to rest at Δ B e / (1 − exp(−Δ a))."""
    part, e = StableInjection(8, nn.Identity()), torch.randn(8)
    assert torch.allclose(part.decay, torch.tensor(0.2).sqrt())
    for weight in part.parameters():
        nn.init.normal_(weight)
    assert part.decay.min() > 0 and part.decay.max() < 1
    s: Tensor | None = None
    for _ in range(2000):
        s = part(s, e)
    delta = nn.functional.softplus(part.step)
    torch.testing.assert_close(s, delta * (part.map.view(8, 8) @ e) / (1 - part.decay), rtol=1e-9, atol=1e-9)


# --------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("inject", ["add", "concat", "stable"])
def test_gradients_through_as_many_repeats_as_there_are_are_whole(inject: str) -> None:
    one, other = loop(f"looped:repeats=3,inject={inject},through=3"), loop(f"looped:repeats=3,inject={inject}")
    other.load_state_dict(one.state_dict())
    x = torch.randn(2, 5, 8)
    for a, b in zip(gradients(one, x).values(), gradients(other, x).values(), strict=True):
        assert a is not None and b is not None and torch.equal(a, b)


def test_gradients_through_the_last_repeat_are_those_of_a_state_without_history() -> None:
    model, x = loop("looped:prelude=1,coda=1,repeats=3,through=1"), torch.randn(2, 5, 8)
    found = gradients(model, x)
    flows: list[Any] = list(model.flows)
    context = Context(own=Source(causal=True))
    e = flows[0](x, context)
    with torch.no_grad():
        s = flows[2](flows[1](e, context), context)
        s = flows[2](flows[1](s + e, context), context)
    model.zero_grad()
    model.norm(flows[3](flows[2](flows[1](s + e, context), context), context)).pow(3).sum().backward()  # ty: ignore
    for name, p in model.named_parameters():
        torch.testing.assert_close(found[name], p.grad, rtol=0, atol=1e-12)
        assert p.grad is not None, "the prelude learns too: each repeat is told of it"


def test_repeats_are_drawn_in_training_alone() -> None:
    model, x = loop("looped:repeats=3,random=true,through=2"), torch.randn(2, 5, 8)
    drawn = torch.tensor([float(model._count(x)) for _ in range(2000)])
    assert drawn.min() == 1 and drawn.mean().item() == pytest.approx(3.0, abs=0.1)
    torch.manual_seed(1)
    one = model(x)
    torch.manual_seed(1)
    assert torch.equal(model(x), one), "a step that is computed again draws the same"
    assert len({len(list(model.trajectory(x))) for _ in range(9)}) > 1
    model.eval()
    assert len({len(list(model.trajectory(x))) for _ in range(9)}) == 1


@pytest.mark.parametrize("inject", INJECTIONS)
def test_another_number_of_repeats_afterwards(inject: str) -> None:
    one, other = (loop(f"looped:repeats={n},inject={inject}") for n in (2, 5))
    other.load_state_dict(one.state_dict())
    x = torch.randn(2, 5, 8)
    assert not torch.equal(one(x), other(x))
    set_repeats(one, 5)
    assert torch.equal(one(x), other(x)) and one.schedule == other.schedule


# ----------------------------------------------------------------------------------------------- coming to rest


def resting(spelling: str = "looped:repeats=8,inject=stable,exit=0.1", **changes: Any) -> Any:
    """A language model whose samples come to rest after different numbers of repeats."""
    torch.manual_seed(4)
    return build(spelling, "language_small", **(TEXT | changes)).eval()


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_sample_rests_by_itself(positions: str) -> None:
    """Whatever is beside it, before the padding or after it; and what it spares is counted."""
    model, ids = resting(positions=positions), torch.randint(0, 17, (6, 7))
    mask = torch.ones(6, 7, dtype=torch.bool)
    mask[2:4, :3] = False
    together = model(ids, attention_mask=mask).logits
    shared = mean_repeats(model)
    alone, repeats = [], []
    for row in range(6):
        set_repeats(model)
        alone.append(model(ids[row : row + 1], attention_mask=mask[row : row + 1]).logits)
        repeats.append(mean_repeats(model))
    torch.testing.assert_close(together[mask], torch.cat(alone)[mask], rtol=0, atol=1e-11)
    assert shared == pytest.approx(sum(repeats) / 6) and min(repeats) < max(repeats) <= 8


def test_later_tokens_do_not_change_when_earlier_ones_rest() -> None:
    model, ids = resting(), torch.randint(0, 17, (4, 7))
    other = torch.cat((ids[:, :4], (ids[:, 4:] + 1) % 17), dim=1)
    torch.testing.assert_close(model(ids).logits[:, :4], model(other).logits[:, :4], rtol=0, atol=1e-11)
    assert mean_repeats(model) < 8


def test_an_exit_that_nothing_reaches_is_none_and_one_that_all_reach_saves_all_but_two() -> None:
    model, ids = resting(), torch.randint(0, 17, (4, 7))
    set_repeats(model, exit=1e-300)
    found = model(ids).logits
    assert mean_repeats(model) == 8
    set_repeats(model, exit=0.0)
    assert torch.equal(model(ids).logits, found) and mean_repeats(model) is None
    set_repeats(model, exit=1e9)
    found = model(ids).logits
    assert mean_repeats(model) == 2
    set_repeats(model, 2, exit=0.0)
    torch.testing.assert_close(model(ids).logits, found, rtol=0, atol=1e-11)


@pytest.mark.parametrize("spelling", [f"looped:inject={inject}" for inject in INJECTIONS])
@pytest.mark.parametrize("exit", [0.0, 0.1])
def test_a_cache_recomputes(spelling: str, exit: float) -> None:
    model, ids, cache = resting(spelling), torch.randint(0, 17, (3, 7)), Cache()
    set_repeats(model, 5, exit)
    whole = model(ids).logits
    for start, end in ((0, 4), (4, 5), (5, 7)):
        found = model(ids[:, start:end], cache=cache).logits
        torch.testing.assert_close(found, whole[:, start:end], rtol=0, atol=1e-11)
    set_repeats(model, 3)
    with pytest.raises(OdeumError, match="begin with a new one"):
        model(ids[:, :1], cache=cache)


def test_a_users_tensors_keep_all_samples_in_place() -> None:
    """What they are rows of is not known, so nothing is left out; what comes out is the same."""
    model, x = Encoder(8, 2, 4, "looped:repeats=6,inject=stable,exit=0.1").eval(), torch.randn(5, 3, 8)
    found = model(x, extra={"rows": torch.randn(5)})
    torch.testing.assert_close(model(x), found, rtol=0, atol=1e-12)


def test_layers_of_a_loop_are_recomputed_where_a_library_asks_for_it() -> None:
    """As transformers does for each layer of a stack: the same gradients, each repeat evaluated once more."""
    model, x, calls = loop("looped:inject=concat,through=2"), torch.randn(2, 5, 8).requires_grad_(), []

    def again(flow: Any, *args: Any) -> Any:
        return checkpoint(lambda *own: (calls.append(flow), flow(*own))[1], *args, use_reentrant=False)

    plain = torch.autograd.grad(model(x).pow(3).sum(), [x, *model.parameters()])
    model.recompute = again
    found = torch.autograd.grad(model(x).pow(3).sum(), [x, *model.parameters()])
    for a, b in zip(found, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    once = len(model.order(model.repeats))
    assert len(calls) == once + len(model.order(2)), "every layer, and again those that gradients pass through"


# ------------------------------------------------------------------------------------------------ in sentences


@pytest.mark.parametrize(
    ("spelling", "sentence"),
    [
        ("looped:prelude=2,coda=2", "prelude=2 and coda=2 leave none of the 4 layers for the core"),
        ("looped:repeats=0", "repeats of looped must be a positive integer, got 0"),
        ("looped:inject=sum", "unknown inject of looped 'sum'"),
        ("looped:inject=none,through=2", "through=2 cuts the gradient of the layers before the loop"),
        ("looped:repeats=4,through=9", "through=9 is more than the 4 repeats; leave it out to pass through all"),
        ("looped:method=leapfrog", "an injection or an exit cannot be combined with leapfrog"),
        ("looped:method=leapfrog,inject=none,exit=0.1", "use inject=none and exit=0, or a method without history"),
        ("looped:weights=knots", "looped repeats layers with weights of their own, but weights=knots is one field"),
        (
            "looped:method=leapfrog,inject=none,gradient=reversible",
            "which cannot be reversed; use gradient=checkpointed",
        ),
        ("looped:exit=-1", "exit of looped must be a non-negative number, got -1"),
        ("looped*2+parallel*2", "looped cannot be a part of a mixed stack: its layers are not a plain sequence"),
    ],
)
def test_what_cannot_loop_is_a_sentence(spelling: str, sentence: str) -> None:
    with pytest.raises(OdeumError, match=sentence):
        stack(spelling, SHAPE)


def test_what_cannot_be_set_is_a_sentence() -> None:
    with pytest.raises(OdeumError, match="only a looped architecture repeats"):
        set_repeats(stack("sequential", SHAPE), 3)
    for wrong in ({"repeats": 0}, {"repeats": 2.0}, {"exit": -1.0}, {"exit": float("nan")}):
        with pytest.raises(OdeumError, match="must be a"):
            set_repeats(loop("looped"), **wrong)
    model, x = loop("looped"), torch.randn(2, 5, 8)
    before = model(x)
    with pytest.raises(OdeumError, match="an injection or an exit cannot be combined with leapfrog"):
        set_solver(model, FixedSteps(Leapfrog()))
    assert torch.equal(model(x), before)
    model = loop("looped:inject=none,method=leapfrog")
    with pytest.raises(OdeumError, match="use inject=none and exit=0"):
        set_repeats(model, 2, exit=0.1)
    assert not model.exit and model.repeats == 4
    with pytest.raises(OdeumError, match="repeats=1000000000 would make"):
        build("looped:repeats=1000000000", "vit_8")
    with pytest.raises(OdeumError, match="layers, more than the limit"):
        build("looped:core=1000000000", "vit_8")


def test_a_run_is_evaluated_with_other_repeats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # both models in one line each
    torch.set_default_dtype(torch.float32)
    run(tmp_path, "looped:repeats=2,random=true,through=1", steps=3)
    assert main(["evaluate", str(tmp_path), "--repeats", "6", "--exit", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "core 2 times" in out and "core 6 times or to 0.5" in out
    [repeats] = [line for line in out.splitlines() if line.startswith("repeats")]
    assert 2 <= float(repeats.split()[-1]) < 6
    assert main(["evaluate", str(tmp_path), "--repeats", "0"]) == 2
    assert "repeats must be a positive integer, got 0" in capsys.readouterr().err
