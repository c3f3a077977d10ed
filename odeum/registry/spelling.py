"""Spellings of architectures (`parallel:independent=6`): read, write, split a list of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from odeum.errors import OdeumError, choose
from odeum.registry.names import ARCHITECTURES, Architecture, Mixed
from odeum.registry.options import spelled_options

PLUS = re.compile(r"(?<!\de)\+|\+(?!\d)")
"""between the parts of a mixed stack; not in 1e+3"""


def parse(spelling: str | Architecture) -> Architecture:
    """Reads `parallel:independent=6` as Layered(method="euler", independent=6); a dataclass is checked and returned.

    `parallel*6+rk4:steps=2*2` is a Mixed of eight layers.
    """
    if not isinstance(spelling, str):
        return _checked(spelling, type(spelling).__name__)
    items = PLUS.split(spelling)
    if len(items) == 1 and "*" not in spelling:
        return _parse_one(spelling)
    parts = []
    for item in items:
        name, star, count = (text.strip() for text in item.rpartition("*"))
        if not star:
            name, count = item, "1"
        elif not (count.isascii() and count.isdigit()):
            raise OdeumError(f"'{item}' in '{spelling}' must end in a number of layers, as in parallel:steps=2*6")
        parts.append((_parse_one(name), int(count)))
    return _checked(Mixed(tuple(parts)), spelling)


def _parse_one(spelling: str) -> Architecture:
    """Reads the spelling of one architecture."""
    name, _, rest = spelling.strip().partition(":")
    if not name:
        raise OdeumError("an architecture is missing; a spelling is NAME:key=value, or NAME*layers+NAME*layers")
    base = ARCHITECTURES[name]
    known, variants = spelled_options(type(base)), base.variants
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
            raise OdeumError(f"'{spelling}' gives {' and '.join(sorted(twice))} of {name} twice; give it once")
        changes |= new
    return _checked(dataclasses.replace(base, **changes), name)


def to_record(architecture: Architecture) -> dict[str, Any]:
    """Returns the architecture as JSON-able data with every option, which does not depend on defaults."""
    if isinstance(architecture, Mixed):
        return {"parts": [{"layers": count, **to_record(part)} for part, count in architecture.parts]}
    return {"name": spell(architecture).partition(":")[0], "options": dataclasses.asdict(architecture)}


def from_record(record: dict[str, Any]) -> Architecture:
    """Returns the architecture of a record, which may come from another version."""
    if "parts" in record:
        parts = tuple((from_record(part), part["layers"]) for part in record["parts"] if "parts" not in part)
        return _checked(Mixed(parts), "a mixed stack")
    name, values = str(record["name"]), dict(record["options"])
    base = ARCHITECTURES[name]
    for key in values:
        choose(str(key), spelled_options(type(base)), f"option of {name}")
    return _checked(dataclasses.replace(base, **values), name)


def split_spellings(text: str) -> list[str]:
    """`a,b:x=1,y=2,c` -> [`a`, `b:x=1,y=2`, `c`]: an item with = and no name belongs to the one before."""
    out: list[str] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name = re.split(r"[:=*+]", item, maxsplit=1)[0]
        names_itself = item[len(name) :][:1] == ":" or (item[len(name) :][:1] != "=" and name.strip() in ARCHITECTURES)
        if out and not names_itself and ("=" in item or _is_variant(out[-1], item)):
            out[-1] += ("," if ":" in out[-1] else ":") + item
        else:
            out.append(item)
    return out


def spell(architecture: Architecture) -> str:
    """Returns the shortest spelling of this architecture."""
    if isinstance(architecture, Mixed):
        return "+".join(f"{spell(part)}*{count}" for part, count in architecture.parts)
    spellings = list(_spellings(architecture))
    if not spellings:
        raise OdeumError(f"{type(architecture).__name__} has no name; give it one by odeum.register.architecture")
    # A run that built-in names can spell should not need a plugin that has a shorter one.
    return min(spellings, key=lambda spelling: (not _is_builtin(spelling), _misleads(spelling), len(spelling)))


def label(architecture: Architecture) -> str:
    """Returns the spelling or, for a class without a name, its repr."""
    parts = [part for part, _ in architecture.parts] if isinstance(architecture, Mixed) else [architecture]
    known = {type(base) for base in ARCHITECTURES.values()}
    return spell(architecture) if all(type(part) in known for part in parts) else repr(architecture)


def _spellings(architecture: Architecture) -> Iterator[str]:
    """Every spelling of the architecture: by each name of its class and each variant that agrees with its options."""
    values = {field.name: getattr(architecture, field.name) for field in dataclasses.fields(architecture)}
    for name, base in ARCHITECTURES.items():
        if type(base) is not type(architecture):
            continue
        for variant, given in {"": {}, **base.variants}.items():
            if all(values[key] == value for key, value in given.items()):
                rest = {k: v for k, v in values.items() if k not in given and v != getattr(base, k)}
                items = [*filter(None, [variant]), *(f"{key}={_text(value)}" for key, value in rest.items())]
                yield name + (":" + ",".join(items) if items else "")


def _is_builtin(spelling: str) -> bool:
    return ARCHITECTURES.entries[spelling.partition(":")[0]].module.startswith("odeum.")


def _misleads(spelling: str) -> bool:
    """Whether the name promises another method than the options: rk2:method=ralston for parallel:method=ralston."""
    name, _, items = spelling.partition(":")
    plain = getattr(ARCHITECTURES[name], "method", None) in ("euler", "lie-trotter")
    return not plain and "method=" in items


def _text(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value).replace("e+", "e")


def _is_variant(previous: str, item: str) -> bool:
    name, colon, _ = previous.partition(":")
    return bool(colon) and name in ARCHITECTURES and item in ARCHITECTURES[name].variants


def _checked(architecture: Architecture, name: str) -> Architecture:
    """Returns the architecture; raises `OdeumError` about the first value that its annotation does not allow."""
    if not isinstance(architecture, Architecture):
        raise OdeumError(f"an architecture is a spelling or one of the dataclasses, not {architecture!r}")
    if isinstance(architecture, Mixed):
        return _checked_parts(architecture, name)
    for option in spelled_options(type(architecture)).values():
        option.check_spelled(getattr(architecture, option.name), f"{option.name} of {name}")
    return architecture


def _checked_parts(architecture: Mixed, name: str) -> Mixed:
    if not architecture.parts:
        raise OdeumError(f"{name} has no layers; write a mixed stack as in parallel*6+rk4*2")
    for part, count in architecture.parts:
        if isinstance(part, Mixed):
            raise OdeumError(f"{name} has a mixed stack as a part; write its parts one after the other")
        _checked(part, type(part).__name__)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise OdeumError(f"{name} must have at least one layer of each architecture, not {count!r}")
    return architecture
