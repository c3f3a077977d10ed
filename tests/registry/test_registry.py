"""A registry keeps one thing a name, says what it knows, and takes the same thing twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripts import load_script

from odeum.errors import OdeumError
from odeum.registry.names import Registry

SOURCE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Pull:
    strength: float = 0.1

def make(): return 1
"""


def test_names_come_back_in_the_order_they_came() -> None:
    registry: Registry[int] = Registry("method")
    assert registry.add("euler", 1, about="one stage", reference="Euler 1768") == 1
    registry.add("rk4-38", 4)
    assert list(registry) == ["euler", "rk4-38"] and list(registry.values()) == [1, 4] and len(registry) == 2
    assert "euler" in registry and "heun" not in registry and registry.get("heun") is None
    entry = registry.entries["euler"]
    assert (entry.about, entry.reference, entry.module) == ("one stage", "Euler 1768", __name__)
    with pytest.raises(OdeumError, match=r"unknown method 'eular'; did you mean 'euler'\? known: euler, rk4-38"):
        registry["eular"]


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a,b", "a=b", "Euler", "-a", "a/b", "..", "é", 7, None])
def test_a_name_that_no_spelling_could_read_is_refused(name: Any) -> None:
    with pytest.raises(OdeumError, match="cannot be the name of an architecture: use lowercase letters"):
        Registry("architecture").add(name, 1)


def test_a_taken_name_is_refused_and_the_first_stays() -> None:
    registry: Registry[int] = Registry("method")
    registry.add("euler", 1)
    with pytest.raises(
        OdeumError, match=f"a method 'euler' already exists, registered by {__name__}; choose another name"
    ):
        registry.add("euler", 2)
    assert registry["euler"] == registry.add("euler", 1)


def test_one_file_read_twice_is_the_same_thing(tmp_path: Path) -> None:
    (tmp_path / "ideas.py").write_text(SOURCE)
    (tmp_path / "others.py").write_text(SOURCE)
    first, again = (load_script(tmp_path / "ideas.py", name) for name in ("ideas_one", "ideas_two"))
    other = load_script(tmp_path / "others.py", "others_one")
    for what in (lambda m: m.Pull, lambda m: m.make, lambda m: m.Pull(0.2)):
        registry: Registry[Any] = Registry("architecture")
        registry.add("pull", what(first))
        assert registry.add("pull", what(again)) is registry["pull"]
        with pytest.raises(OdeumError, match="'pull' already exists"):
            registry.add("pull", what(other))
    with pytest.raises(OdeumError, match="an architecture 'pull' already exists"):
        registry.add("pull", first.Pull(0.3))
    registry.add("one", lambda: 1)
    with pytest.raises(OdeumError, match="'one' already exists"):
        registry.add("one", lambda: 2)
