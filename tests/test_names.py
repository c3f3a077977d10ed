"""Two things never share a name: who reads `Plan` or `LONGEST` need not ask which one."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "odeum"

SHARED = {
    "run": "every verb of the command line is a module with `run`",
    "load": "`odeum.load` reads a run, `odeum.interop.load` pretrained and `….transevolve.load` published weights",
    "RECIPES": "each module of tasks has its own recipes, and nobody imports them",
}
ROOMS = {
    "base": "what the modules of a room have in common",
    "classification": "a kind has its declaration, its model and its task",
    "images": "a kind",
    "language": "a kind",
    "listops": "a kind, and its data",
    "masked": "a kind",
    "regression": "a kind",
    "translation": "a kind",
    "looped": "the settings of an architecture, and what builds it",
    "remembering": "the settings of an architecture, and what builds it",
}
DIALECT = {"words", "said", "strangers", "together", "paint", "lands", "landing", "suits"}
WORDS_OF_TEXT = {"data/sniffing.py", "data/split_names.py", "data/tokens.py", "tasks/language.py"}
"""where words are the words of a text"""


@cache
def trees() -> list[tuple[str, ast.Module]]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def names_of(node: ast.stmt) -> list[str]:
    """What a statement at the top of a module defines; not a second name of the same thing, nor a type variable."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar":
        return []
    same = value.attr if isinstance(value, ast.Attribute) else None
    return [target.id for target in targets if isinstance(target, ast.Name) and target.id != same]


def test_no_two_public_things_share_a_name() -> None:
    homes: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees():
        for name in (name for node in tree.body for name in names_of(node) if not name.startswith("_")):
            homes[name].add(module)
    shared = {name: sorted(modules) for name, modules in homes.items() if len(modules) > 1}
    assert {name: modules for name, modules in shared.items() if name not in SHARED} == {}
    assert set(SHARED) <= set(shared), "a reason without a need"


def test_no_two_modules_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module, _ in trees():
        homes[Path(module).stem].append(module)
    shared = {name for name, modules in homes.items() if len(modules) > 1}
    assert shared - {"__init__"} == set(ROOMS)


def test_names_are_plain() -> None:
    for module, tree in trees():
        found = set()
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                    found.add(name)
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    found.add(name)
        allowed = {"words"} if module in WORDS_OF_TEXT else set()
        assert found & DIALECT <= allowed, module
