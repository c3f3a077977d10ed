"""Short spellings of architectures (`parallel:independent=6`): reading, writing and splitting a list of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from odeum.errors import OdeumError, choose
from odeum.settings.architecture import ARCHITECTURES, Architecture
from odeum.settings.checks import options


def parse(spelling: str | Architecture) -> Architecture:
    """`parallel:independent=6` -> Layered(method="euler", independent=6); a dataclass is checked and returned."""
    if not isinstance(spelling, str):
        return _checked(spelling, type(spelling).__name__)
    name, _, rest = spelling.strip().partition(":")
    base = ARCHITECTURES[name]
    known, variants = options(type(base)), base.variants
    changes: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if equals:
            choose(key, known, f"option of {name}")
            new = {key: known[key].convert(value, f"{key} of {name}")}
        elif variants:
            new = variants[choose(item, variants, f"variant of {name}")]
        else:
            takes = f"takes: {', '.join(known)}" if known else "takes no options"
            raise OdeumError(f"'{item}' in '{spelling}' should read key=value; {name} {takes}")
        if twice := changes.keys() & new.keys():
            raise OdeumError(f"'{spelling}' says {' and '.join(sorted(twice))} of {name} twice; say it once")
        changes |= new
    return _checked(dataclasses.replace(base, **changes), name)


def to_record(architecture: Architecture) -> dict[str, Any]:
    """The architecture for machines: every option, so that it stays what it is when a default changes."""
    return {"name": spell(architecture).partition(":")[0], "options": dataclasses.asdict(architecture)}


def from_record(record: dict[str, Any]) -> Architecture:
    """The architecture of a record, which may come from another version."""
    name, values = str(record["name"]), dict(record["options"])
    base = ARCHITECTURES[name]
    for key in values:
        choose(str(key), options(type(base)), f"option of {name}")
    return _checked(dataclasses.replace(base, **values), name)


def split_spellings(text: str) -> list[str]:
    """`a,b:x=1,y=2,c` -> [`a`, `b:x=1,y=2`, `c`]: an item with = and no name belongs to the one before."""
    out: list[str] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        names_itself = ":" in item or item in ARCHITECTURES
        if out and not names_itself and ("=" in item or _is_variant(out[-1], item)):
            out[-1] += ("," if ":" in out[-1] else ":") + item
        else:
            out.append(item)
    return out


def spell(architecture: Architecture) -> str:
    """The shortest spelling that `parse` turns into this architecture."""
    spellings = list(_spellings(architecture))
    if not spellings:
        raise OdeumError(f"{type(architecture).__name__} has no name; give it one by odeum.register.architecture")
    # A run that Odeum's own names can spell should not need the plugin that has a shorter one.
    return min(spellings, key=lambda spelling: (not _is_own(spelling), _misleads(spelling), len(spelling)))


def label(architecture: Architecture) -> str:
    """What people are shown: the spelling or, of a class without a name, what Python shows."""
    named = any(type(base) is type(architecture) for base in ARCHITECTURES.values())
    return spell(architecture) if named else repr(architecture)


def _spellings(architecture: Architecture) -> Iterator[str]:
    """What is to be said beside each name of this kind, and beside each variant that says nothing wrong."""
    values = {field.name: getattr(architecture, field.name) for field in dataclasses.fields(architecture)}
    for name, base in ARCHITECTURES.items():
        if type(base) is not type(architecture):
            continue
        for variant, given in {"": {}, **base.variants}.items():
            if all(values[key] == value for key, value in given.items()):
                rest = {k: v for k, v in values.items() if k not in given and v != getattr(base, k)}
                items = [*filter(None, [variant]), *(f"{key}={_text(value)}" for key, value in rest.items())]
                yield name + (":" + ",".join(items) if items else "")


def _is_own(spelling: str) -> bool:
    return ARCHITECTURES.entries[spelling.partition(":")[0]].module.startswith("odeum.")


def _misleads(spelling: str) -> bool:
    """Whether a name that promises a method is given another: rk2:method=ralston is parallel:method=ralston."""
    name, _, items = spelling.partition(":")
    plain = getattr(ARCHITECTURES[name], "method", None) in ("euler", "lie-trotter")
    return not plain and "method=" in items


def _text(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _is_variant(previous: str, item: str) -> bool:
    name, colon, _ = previous.partition(":")
    return bool(colon) and name in ARCHITECTURES and item in ARCHITECTURES[name].variants


def _checked(architecture: Architecture, name: str) -> Architecture:
    """The architecture, if each of its values is one that its annotation allows, else a sentence about the first."""
    if not isinstance(architecture, Architecture):
        raise OdeumError(f"an architecture is a spelling or one of the dataclasses, not {architecture!r}")
    for option in options(type(architecture)).values():
        option.check(getattr(architecture, option.name), f"{option.name} of {name}")
    return architecture
