"""Short spellings of architectures: what is written can be read, and what cannot be read gets a sentence."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest

from odeum.architectures import stack
from odeum.architectures.continuous import Continuous
from odeum.architectures.layered import Layered
from odeum.architectures.sandwich import Sandwich
from odeum.architectures.transevolve import Evolved
from odeum.errors import OdeumError
from odeum.models.settings import Shape
from odeum.registry.names import ARCHITECTURES, Mixed
from odeum.registry.options import options
from odeum.registry.spelling import from_record, parse, spell, split_spellings, to_record

SMALL = Shape(width=8, heads=2, depth=4, hidden=16)


def random_architecture(generator: random.Random) -> Any:
    """A named architecture with some of its words replaced by any that their annotations allow."""
    base = generator.choice(list(ARCHITECTURES.values()))
    changes = {}
    for key, option in options(type(base)).items():
        if generator.random() < 0.5:
            continue
        if isinstance(option.kinds[0], str):
            changes[key] = generator.choice(option.kinds)
        elif option.optional and generator.random() < 0.3:
            changes[key] = None
        elif option.kinds[0] is bool:
            changes[key] = generator.random() < 0.5
        elif option.kinds[0] is str:
            changes[key] = generator.choice(["0-5/4-5/6-10", "0", "1/0"])
        elif option.kinds[0] is int:
            least, most = option.range.least, option.range.most
            changes[key] = generator.randint(1 if least is None else int(least), int(min(99, most or 99)))
        else:
            value = generator.choice([generator.random(), 10.0 ** generator.randint(-12, 3), 1 / 3])
            bound = option.range.below or option.range.most
            changes[key] = value if bound is None else min(value, 0.9 * bound)
    return dataclasses.replace(base, **changes)


def random_stack(generator: random.Random) -> Any:
    """An architecture or, now and then, several in a row."""
    if generator.random() < 0.7:
        return random_architecture(generator)
    count = generator.randint(1, 3)
    return Mixed(tuple((random_architecture(generator), generator.randint(1, 12)) for _ in range(count)))


@pytest.mark.parametrize("seed", range(10))
def test_every_architecture_can_be_spelled_and_read_back(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(50):
        architecture = random_stack(generator)
        spelling = spell(architecture)
        assert parse(spelling) == architecture
        assert spell(parse(spelling)) == spelling
        assert parse(architecture) is architecture
        assert from_record(json.loads(json.dumps(to_record(architecture)))) == architecture


@pytest.mark.parametrize("seed", range(10))
def test_lists_of_spellings_are_split_where_they_were_joined(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(20):
        spellings = [spell(random_stack(generator)) for _ in range(generator.randint(1, 5))]
        assert split_spellings(",".join(spellings)) == spellings
        assert split_spellings(" , ".join(spellings) + ",") == spellings


def test_spellings_are_short() -> None:
    assert [spell(architecture) for architecture in ARCHITECTURES.values()] == list(ARCHITECTURES)
    assert spell(Layered(method="euler", independent=6)) == "parallel:independent=6"
    assert spell(Layered(norm="post", method="rk4")) == "rk4:norm=post"
    assert spell(Layered(method="bosh3")) == "parallel:method=bosh3"  # shorter, but misleading: rk2:method=bosh3
    assert spell(Continuous(rtol=1e-2)) == "continuous:rtol=0.01"
    for variant in Evolved.variants:
        assert len(spell(parse(f"transevolve:{variant}"))) <= len(f"transevolve:{variant}")
    assert split_spellings("transevolve:full-1,steps=2,rk4,independent=2") == [
        "transevolve:full-1,steps=2",
        "rk4:independent=2",
    ]
    assert split_spellings("") == []
    assert parse(" parallel : independent = 6 , steps=2 ".replace(" :", ":")) == parse("parallel:independent=6,steps=2")


@pytest.mark.parametrize(
    ("spelling", "sentence"),
    [
        ("paralel", "unknown architecture 'paralel'; did you mean 'parallel'? known: sequential, post-norm, parallel"),
        ("", "an architecture is missing; a spelling is NAME:key=value"),
        ("rk4:step=2", "unknown option of rk4 'step'; did you mean 'steps'?"),
        ("rk4:steps=two", "steps of rk4 must be a positive integer, got 'two'"),
        ("rk4:steps=1.5", "steps of rk4 must be a positive integer, got '1.5'"),
        ("rk4:steps=0", "steps of rk4 must be a positive integer, got 0"),
        ("rk4:steps=-1", "steps of rk4 must be a positive integer, got -1"),
        ("rk4:steps", "'steps' in 'rk4:steps' should read key=value; rk4 takes: method, steps"),
        ("rk4:steps=1,steps=2", "'rk4:steps=1,steps=2' gives steps of rk4 twice"),
        ("rk4:norm=prenorm", "unknown norm of rk4 'prenorm'; did you mean 'pre'? known: pre, shared, post"),
        ("continuous:method=rk4", "unknown method of continuous 'rk4'; known: bosh3, dopri5"),
        ("continuous:rtol=nan", "rtol of continuous must be a non-negative number, got nan"),
        ("continuous:rtol=-1", "rtol of continuous must be a non-negative number, got -1"),
        ("sandwich:coefficient=-1", "coefficient of sandwich must be a non-negative integer, got -1"),
        ("transevolve:full-3", "unknown variant of transevolve 'full-3'; did you mean 'full-2'? known: full-1"),
        ("transevolve:full-1,random-2", "gives blocks and feedforward of transevolve twice"),
        (Layered(method="rk5"), "unknown method of Layered 'rk5'; did you mean 'rk4'?"),  # ty: ignore
        (Layered(form="maccaroni"), "unknown form of Layered 'maccaroni'; did you mean 'macaron'?"),  # ty: ignore
        (Layered(steps=0), "steps of Layered must be a positive integer, got 0"),
        (Layered(independent=2.0), "independent of Layered must be a positive integer, got 2.0"),  # ty: ignore
        (Sandwich(gradient="none"), "unknown gradient of Sandwich 'none'"),  # ty: ignore
        ("rk4:schedule=0-3/1", "schedule=0-3/1 has 5 places, but the depth is 4 layers; they must be equal"),
        ("rk4:schedule=0-999999999", "schedule=0-999999999 has 1000000000 places, but the depth is 4"),
        ("rk4:schedule=0/2-3/3", "schedule=0/2-3/3 omits layer 1; it must use each from 0 to 3"),
        ("rk4:schedule=3-0", "'3-0' in schedule=3-0 must be ascending, as in 0-3"),
        ("rk4:schedule=0-3x", "'0-3x' in schedule=0-3x must be a layer or a row of them, as in 0-5/4-5/6-10"),
        ("rk4:schedule=0//1", "'' in schedule=0//1 must be a layer"),
        ("rk4:schedule=", "schedule of rk4 must be a text without"),
        ("rk4:schedule=0-3,independent=2", "schedule=0-3 and independent=2 both define which layers share weights"),
        ("parallel*6+rk4*2", "parallel*6+rk4*2 is 8 layers, but the depth is 4; they must be equal"),
        ("parallel*2+paralel*2", "unknown architecture 'paralel'; did you mean 'parallel'?"),
        ("parallel*2+", "an architecture is missing"),
        ("parallel*two+rk4", "'parallel*two' in 'parallel*two+rk4' must end in a number of layers"),
        ("parallel*2:steps=2+rk4*2", "must end in a number of layers, as in parallel:steps=2*6"),
        ("parallel*0+rk4*4", "parallel*0+rk4*4 must have at least one layer of each architecture, not 0"),
        ("parallel*2+rk4:step=2*2", "unknown option of rk4 'step'; did you mean 'steps'?"),
        ("parallel*2+rk4:norm=post*2", "rk4 adds all terms in one step and would drop the norm"),
        ("transevolve*2+transevolve*2", "have random matrices of one seed; give each another seed"),
        (Mixed(((Mixed(((Layered(), 4),)), 1),)), "has a mixed stack as a part; write its parts one after the other"),
        (Mixed(), "Mixed has no layers"),
        (7, "an architecture is a spelling or one of the dataclasses, not 7"),
    ],
)
def test_wrong_words_get_a_sentence(spelling: Any, sentence: str) -> None:
    with pytest.raises(OdeumError) as error:
        stack(spelling, SMALL)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
