"""Any settings of the right types describe a model on the meta device or are refused in a sentence; nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odeum.errors import OdeumError
from odeum.lab.tasks import KINDS
from odeum.lab.train.settings import Training
from odeum.models import build
from odeum.models.pretrained import NOT_OFFERED
from odeum.registry.names import ARCHITECTURES
from odeum.registry.options import options
from odeum.registry.spelling import parse, spell

SMALL = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64])
WHOLE = SMALL | st.integers(-2, 40) | st.sampled_from([0, -1, 10**6, 2**31, 2**63, 10**30])
REAL = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 0.1, 0.5, 1.0, -1.0, 1e308])
TEXT = st.sampled_from(["", "rk4", "parallel", "10m", "auto", "nonsense", "\0", "é"])

QUICK = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation's type, whether they make sense or not."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.lists(WHOLE, max_size=3).map(tuple)
    if inner := get_args(hint):
        return st.one_of(*(st.none() if part is type(None) else values(part) for part in inner))
    return {int: WHOLE, float: REAL, bool: st.booleans(), str: TEXT}[hint]


@st.composite
def changes(draw: st.DrawFn, cls: type, most: int = 4) -> dict[str, Any]:
    """A few of a dataclass's fields, with values."""
    hints = get_type_hints(cls)
    names = draw(st.lists(st.sampled_from(sorted({*hints} - {*NOT_OFFERED})), max_size=most, unique=True))
    return {name: draw(values(hints[name])) for name in names if name in {f.name for f in dataclasses.fields(cls)}}


@st.composite
def architectures(draw: st.DrawFn) -> Any:
    """An architecture by name, with options of the right types."""
    base = draw(st.sampled_from(sorted(ARCHITECTURES)))
    known = options(type(ARCHITECTURES[base]))
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True)) if known else []
    chosen = {
        n: draw(st.sampled_from(sorted(known[n].names or ())) if known[n].names else values(known[n].hint))
        for n in names
    }
    return dataclasses.replace(ARCHITECTURES[base], **chosen)


SIZES = {"width": 16, "heads": 2, "depth": 2}


@QUICK
@given(data=st.data())
def test_models_are_built_or_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([kind for kind in KINDS.values() if kind.model.presets]))
    preset = data.draw(st.sampled_from(sorted(kind.model.presets)))
    words = SIZES | data.draw(changes(type(kind.model.presets[preset])))
    with contextlib.suppress(OdeumError), torch.device("meta"):
        assert build(data.draw(architectures()), preset, **words) is not None


@QUICK
@given(architecture=architectures())
def test_what_is_an_architecture_can_be_spelled_and_read(architecture: Any) -> None:
    with contextlib.suppress(OdeumError):
        assert parse(spell(parse(architecture))) == architecture


@QUICK
@given(words=changes(Training, most=8))
def test_recipes_are_made_or_refused(words: dict[str, Any]) -> None:
    with contextlib.suppress(OdeumError):
        assert dataclasses.asdict(Training(**words)) | words == dataclasses.asdict(Training(**words))


@QUICK
@given(data=st.data())
def test_options_of_data_are_made_or_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(KINDS.values())))
    words = data.draw(changes(kind.options))
    with contextlib.suppress(OdeumError):
        assert kind.options(**words) is not None


@QUICK
@given(text=st.text(alphabet="rk4:steps=12,parallel independent-é\0", max_size=24))
def test_spellings_are_read_or_refused(text: str) -> None:
    with contextlib.suppress(OdeumError):
        parse(text)
