"""The doors: what anybody registers has a name like Odeum's own, and what cannot work is refused at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
import torch
from torch import Tensor, nn

import odeum
from odeum import Context, Field, Layered, Method, Range, Scaled, Shape, Source, Stepped, Sum, Tableau, build, register
from odeum.architectures import stack
from odeum.architectures.parts import make_method, tableaux
from odeum.errors import OdeumError
from odeum.flow import Flow, Stack
from odeum.integrators import EULER, FixedSteps, RungeKutta
from odeum.registry.names import ARCHITECTURES, FIELDS, METHODS
from odeum.registry.plugins import REGISTRIES, requirements
from odeum.registry.spelling import from_record, parse, spell, split_spellings, to_record
from odeum.tableaux import BOSH3

SMALL = Shape(width=8, heads=2, depth=4, hidden=16)


@pytest.fixture(autouse=True)
def clean_registries() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = [dict(registry.entries) for registry in REGISTRIES]
    yield
    for registry, entries in zip(REGISTRIES, before, strict=True):
        registry.entries.clear()
        registry.entries.update(entries)


class ToMean(Field):
    """Every particle is drawn to the mean of all."""

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return x.mean(dim=1, keepdim=True) - x


@dataclass(frozen=True)
class Pull(Stepped):
    """A layer with a pull to the mean.

    More about it."""

    strength: Annotated[float, Range(least=0)] = 0.1
    offset: float = 0.0
    tied: bool = False
    label: str = "plain"
    kind: Literal["mean", "median"] = "mean"
    rank: Annotated[int | None, Range(above=0, most=9)] = None

    def field(self, shape: Shape, cross: bool = False) -> Field:
        """The usual terms, and the pull."""
        return Sum(*odeum.terms(shape, cross), Scaled(self.strength, ToMean()))


def test_a_dataclass_becomes_a_name_with_options() -> None:
    assert register.architecture("pull", about="", reference="nobody, 2026")(Pull) is Pull
    entry = ARCHITECTURES.entries["pull"]
    assert (entry.about, entry.reference, entry.module) == ("A layer with a pull to the mean", "nobody, 2026", __name__)
    spelling = "pull:method=rk4,independent=2,strength=0.5,offset=-1.0,tied=true,label=other,rank=3"
    found = parse(spelling)
    assert found == Pull(
        method="rk4", independent=2, strength=0.5, offset=-1.0, tied=True, label="other", rank=3, kind="mean"
    )
    assert spell(found) == spelling and from_record(to_record(found)) == found
    assert split_spellings(f"rk4,{spelling},sequential") == ["rk4", spelling, "sequential"]
    assert [need["name"] for need in requirements(found)] == ["pull"]


@pytest.mark.parametrize(
    ("spelling", "sentence"),
    [
        ("pul", "unknown architecture 'pul'; did you mean 'pull'?"),
        ("pull:strenght=1", "unknown option of pull 'strenght'; did you mean 'strength'?"),
        ("pull:strength=-1", "strength of pull must be a non-negative number, got -1.0"),
        ("pull:strength=nan", "strength of pull must be a non-negative number, got nan"),
        ("pull:offset=nan", "offset of pull must be a finite number, got nan"),
        ("pull:offset=inf", "offset of pull must be a finite number, got inf"),
        ("pull:rank=10", "rank of pull must be an integer above 0 and at most 9, got 10"),
        ("pull:rank=0", "rank of pull must be an integer above 0 and at most 9, got 0"),
        ("pull:tied=maybe", "unknown tied of pull 'maybe'; known: true, false"),
        ("pull:kind=mode", "unknown kind of pull 'mode'; "),
        ("pull:method=ralstone", "unknown method of pull 'ralstone'; did you mean 'ralston'?"),
        (Pull(label="a,b"), "label of Pull must be a text without , : = + * and surrounding spaces, got 'a,b'"),
        (Pull(tied="yes"), "tied of Pull must be true or false, got 'yes'"),  # ty: ignore
    ],
)
def test_its_options_are_checked_like_our_own(spelling: Any, sentence: str) -> None:
    register.architecture("pull", Pull())
    register.tableau(Tableau("ralston", order=2, c=(0.0, 2 / 3), a=((), (2 / 3,)), b=(1 / 4, 3 / 4)))
    with pytest.raises(OdeumError) as error:
        parse(spelling)
    assert sentence in str(error.value)


def test_a_field_is_stepped_shared_and_dropped_like_our_own() -> None:
    register.architecture("pull", Pull())
    built: Any = stack("pull:independent=2,method=rk4,steps=3", dataclasses.replace(SMALL, stochastic_depth=0.2))
    assert built.schedule == (0, 0, 1, 1) and len(built.flows) == 2 and built.norm is not None
    assert [flow.solver.steps for flow in built.flows] == [3, 3]
    rates = [[m.rate for m in flow.modules() if type(m).__name__ == "StochasticDepth"] for flow in built.flows]
    assert rates == [[], [0.2, 0.2]]
    plain: Any = stack("sequential", SMALL)
    pulled: Any = stack("pull:strength=0", SMALL)
    pulled.load_state_dict(plain.state_dict())
    x = torch.randn(2, 5, 8)
    assert torch.equal(pulled(x), plain(x))
    assert not torch.allclose(stack("pull:strength=2", SMALL)(x), plain(x))


def test_a_decoder_needs_a_field_that_can_look_at_an_encoder() -> None:
    @dataclass(frozen=True)
    class Alone(Stepped):
        def field(self, shape: Shape) -> Field:
            return Sum(*odeum.terms(shape))

    assert isinstance(stack(Alone(), SMALL), Stack)
    with pytest.raises(OdeumError, match=r"Alone cannot be a decoder: .*define field\(self, shape, cross\)"):
        stack(Alone(), SMALL, cross=True)
    x, memory = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    decoder = stack(Pull(), SMALL, cross=True)
    out = decoder(x, Context(other=Source(memory=memory)))
    assert not torch.allclose(out, decoder(x, Context(other=Source(memory=-memory))))


def test_a_class_may_make_its_whole_stack() -> None:
    @register.architecture("twice")
    @dataclass(frozen=True)
    class Twice(odeum.Architecture):
        """One layer, twice."""

        def stack(self, shape: Shape, cross: bool) -> Stack:
            """Two visits of one flow."""
            return Stack([Flow(Sum(*odeum.terms(shape, cross)), FixedSteps(RungeKutta(EULER)))], (0, 0))

    built: Any = build("twice", SMALL)
    assert built.schedule == (0, 0)
    with pytest.raises(OdeumError, match="unknown option of twice 'x'"):
        parse("twice:x=1")


def test_a_preset_of_our_own_needs_no_plugin() -> None:
    register.architecture("quick", odeum.Layered(method="rk4", norm="post-sum"), about="rk4 with one norm at the end")
    assert parse("quick") == parse("rk4:norm=post-sum")
    assert spell(parse("quick")) == "rk4:norm=post-sum"
    assert requirements(parse("quick")) == []


def test_methods_by_numbers_and_by_class() -> None:
    ralston = register.tableau(Tableau("ralston", order=2, c=(0.0, 2 / 3), a=((), (2 / 3,)), b=(1 / 4, 3 / 4)))
    assert METHODS.entries["ralston"].about == "Runge–Kutta, 2 stages, order 2"
    assert make_method("ralston").order == 2 and tableaux()["ralston"] is ralston
    stack("ode-transformer:method=ralston", SMALL)
    register.tableau(BOSH3._replace(name="pair"))
    stack("continuous:method=pair", SMALL)
    with pytest.raises(OdeumError, match="unknown method of continuous 'ralston'; known: bosh3, dopri5, pair"):
        stack("continuous:method=ralston", SMALL)

    @register.method("backwards", reference="nobody")
    class Backwards(Method):
        """Euler against the field."""

        def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor:
            return x - dt * field(t, x, context)

    assert METHODS.entries["backwards"].about == "Euler against the field"
    assert isinstance(make_method("backwards"), Backwards)
    torch.manual_seed(0)
    there = stack("parallel:method=backwards", SMALL)
    assert [need["name"] for need in requirements(parse("parallel:method=backwards"))] == ["backwards"]
    there(torch.randn(2, 3, 8)).sum().backward()
    register.method("module", lambda: nn.Identity())  # ty: ignore
    with pytest.raises(OdeumError, match=r"the method 'module' must be made as an odeum\.Method, not Identity"):
        stack("parallel:method=module", SMALL)


def test_a_field_takes_the_place_of_attention_or_feed_forward() -> None:
    register.field("mean", lambda shape: ToMean(), about="to the mean")
    built = stack("macaron:attention=mean,method=rk4", SMALL)
    assert "attention" not in "".join(name for name, _ in built.named_parameters()).lower()
    assert sum(isinstance(module, ToMean) for module in built.modules()) == 4
    assert [need["name"] for need in requirements(parse("rk4:feedforward=mean"))] == ["mean"]
    with pytest.raises(OdeumError, match="unknown attention of rk4 'men'; did you mean 'mean'"):
        parse("rk4:attention=men")
    assert FIELDS["mean"](SMALL).formula("x") == "ToMean(x)"


class Bare:
    pass


class NoDataclass(Stepped):
    def field(self, shape: Shape) -> Field:
        return ToMean()


@dataclass(frozen=True)
class NoDefault(odeum.Architecture):
    size: int


@dataclass(frozen=True)
class Odd(Stepped):
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Hiding(Stepped):
    field: str = "mean"  # ty: ignore


@dataclass(frozen=True)
class Wrong(Stepped):
    steps: Annotated[int, Range(least=1)] = 0


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda: register.architecture("bare")(Bare), "Bare must be a sub-class of odeum.Stepped"),
        (lambda: register.architecture("bare", "pull"), "must be a sub-class of odeum.Stepped"),
        (
            lambda: register.architecture("none")(NoDataclass),
            r"write @dataclass\(frozen=True\) under @odeum.register",
        ),
        (lambda: register.architecture("none")(NoDefault), "needs a default, but size of NoDefault has none"),
        (lambda: register.architecture("odd")(Odd), "the option sizes of Odd must be int, float, bool, str"),
        (lambda: register.architecture("hiding")(Hiding), "the option field of Hiding hides the method of that name"),
        (lambda: register.architecture("wrong")(Wrong), "steps of wrong must be a positive integer, got 0"),
        (
            lambda: register.architecture("rk4")(Pull),
            "an architecture 'rk4' already exists, registered by odeum.architectures.layered",
        ),
        (lambda: register.architecture("my pull")(Pull), "'my pull' cannot be the name of an architecture"),
        (lambda: register.method("rk4", ToMean), "a method 'rk4' already exists"),
        (lambda: register.method("none", 7), "the method 'none' must be callable, got 7"),
        (lambda: register.tableau("ralston"), "register.tableau takes an odeum.Tableau, not 'ralston'"),
        (lambda: spell(Pull()), "Pull has no name; give it one by odeum.register.architecture"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_registered(act: Any, sentence: str) -> None:
    with pytest.raises(OdeumError, match=sentence):
        act()


def test_a_class_without_a_builder_says_what_it_needs() -> None:
    @dataclass(frozen=True)
    class Empty(Stepped):
        pass

    with pytest.raises(OdeumError, match=r"Empty does not define how it is built; define field\(self, shape\)"):
        stack(Empty(), SMALL)

    @dataclass(frozen=True)
    class Stray(Stepped):
        def field(self, shape: Shape) -> Any:
            return nn.Linear(8, 8)

    with pytest.raises(OdeumError, match=r"Stray\.field should return an odeum\.Field, not Linear"):
        stack(Stray(), SMALL)


def test_a_field_for_single_layers_does_not_stand_for_one_over_all_of_them() -> None:
    @dataclass(frozen=True)
    class Single(Layered):
        def field(self, shape: Shape) -> Field:
            return ToMean()

    assert isinstance(stack(Single(method="euler"), SMALL).flows[0].field, ToMean)
    with pytest.raises(OdeumError, match="Single defines its field for single layers, which weights=knots would not"):
        stack(Single(weights="knots"), SMALL)


def test_an_architecture_may_bring_the_method_of_each_layer() -> None:
    places = []

    @dataclass(frozen=True)
    class Own(Layered):
        def method_for(self, place: odeum.Place) -> odeum.Method:
            places.append((place.layers, len(place.field.terms), place.shape.depth))
            return make_method("rk4")

    made = stack(Own(independent=2, sharing="cycle"), SMALL)
    assert places == [((0, 2), 2, 4), ((1, 3), 2, 4)]
    assert [flow.solver.method.tableau.name for flow in made.flows] == ["rk4", "rk4"]


def test_names_and_tableaux_agree() -> None:
    assert all(tableau.name == name for name, tableau in tableaux().items())
    assert all(make_method(name) is not None for name in METHODS)


class Back(Field):
    """The mean of what has been; it keeps no cache."""

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        return x.cumsum(dim=1) / count[:, None] - x if context.own.causal else x.mean(dim=1, keepdim=True) - x


TINY = {"width": 8, "heads": 2, "depth": 2, "hidden": 16, "vocabulary": 11, "length": 12}


@pytest.mark.parametrize("kind", [odeum.Language, odeum.Translation])
def test_a_field_that_looks_ahead_is_refused_in_a_causal_model(kind: Any) -> None:
    register.field("ahead", lambda shape: ToMean())
    register.field("back", lambda shape: Back())
    before = torch.random.get_rng_state()
    with pytest.raises(OdeumError, match=r"ToMean cannot be used in a causal model: a later position changes"):
        build("parallel:attention=ahead", kind(**TINY))
    torch.random.set_rng_state(before)
    ours = build("rk4", kind(**TINY))
    torch.random.set_rng_state(before)
    assert build("rk4:feedforward=back", kind(**TINY)).training and ours.training
    build("parallel:attention=ahead", odeum.Classification(**TINY))  # where all may be seen


def test_a_field_without_a_cache_decodes_what_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    from odeum.decode import generate

    register.field("back", lambda shape: Back())
    torch.manual_seed(2)
    model: Any = build("parallel:feedforward=back,steps=2", odeum.Language(**TINY)).eval()
    for weight in model.parameters():
        if weight.dim() > 1:  # fresh weights would repeat the last token whatever came before
            torch.nn.init.normal_(weight)
    ids = torch.randint(11, (8, 4))
    expected = ids
    for _ in range(5):
        scores = model(input_ids=expected).logits[:, -1]
        expected = torch.cat((expected, scores.argmax(dim=-1, keepdim=True)), dim=1)
    assert torch.equal(generate(model, ids, max_new_tokens=5, temperature=0.0), expected)
    monkeypatch.setattr(Back, "cached", True)  # a field that promises what it does not keep is heard on its promise
    assert not torch.equal(generate(model, ids, max_new_tokens=5, temperature=0.0), expected)
