"""Imports run one way, from the mathematics to the command line; the library does not need the lab."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "odeum"

LAYERS = """
    errors
    storage tokenizer_files tokens
    registry tableaux models.settings models.pretrained models.limits
    kernels draws hooks
    fields
    integrators
    flow looping schedules
    architectures
    models
    decode interop inspection surgery
    hf
    lab
    testing
    __main__
"""
RESOLVED_IN_THE_LAB = {
    "odeum.__init__": {"odeum.lab.tasks", "odeum.lab.tasks.run"},  # odeum.load, odeum.Run
    "odeum.registry.register": {"odeum.lab.tasks.kind"},  # odeum.register.kind
    "odeum.hf.__init__": {"odeum.lab.hf_run"},  # odeum.hf.save, odeum.hf.from_run
    "odeum.testing": {"odeum.lab.testing"},
    "odeum.__main__": {"odeum.lab.cli"},
}
"""library modules with names that resolve into the lab on first use, and where"""
LEVEL = {name: level for level, line in enumerate(LAYERS.strip().splitlines()) for name in line.split()}
MODULES = sorted(PACKAGE.rglob("*.py"))
LIGHT = (
    "errors",
    "registry",
    "storage",
    "tableaux",
    "schedules",
    "architectures",
    "models.settings",
    "models.pretrained",
    "models.limits",
)
HEAVY = ("torch", "numpy", "sklearn", "tokenizers", "matplotlib", "sacrebleu", "transformers", "PIL", "rich")


def name_of(path: Path) -> str:
    parts = ("odeum", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(node: ast.AST, *, everywhere: bool) -> Iterator[str]:
    """Names of the modules that are imported, at the top or also inside functions; not those for types alone."""
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child) or (not everywhere and isinstance(child, ast.FunctionDef)):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports hide which way an import points"
            assert child.module is not None
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from imports(child, everywhere=everywhere)


def top(module: str) -> str | None:
    """The layer of a module: its first part, or its first two where a module has a layer of its own."""
    parts = module.split(".")
    if parts[0] != "odeum" or len(parts) < 2:
        return None
    return ".".join(parts[1:3]) if ".".join(parts[1:3]) in LEVEL else parts[1]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_imports_point_one_way() -> None:
    wrong = []
    for path in MODULES:
        own = top(name_of(path))
        if own is None:
            continue  # odeum itself loads its names when they are used
        assert own in LEVEL, f"'{own}' has no place in the order of layers: give it one"
        for module in imports(tree(path), everywhere=True):
            other = top(module)
            if other is not None and other in LEVEL and LEVEL[other] > LEVEL[own]:
                wrong.append(f"{name_of(path)} imports {module}, which is built upon it")
    assert not wrong


def test_only_these_names_of_the_library_resolve_into_the_lab() -> None:
    named = {}
    for path in MODULES:
        module = ".".join(("odeum", *path.relative_to(PACKAGE).with_suffix("").parts))
        if module.startswith("odeum.lab"):
            continue
        if uses := set(re.findall(r"odeum\.lab(?:\.\w+)*", strings_and_imports(tree(path)))):
            named[module] = uses
    assert named == RESOLVED_IN_THE_LAB


def strings_and_imports(node: ast.AST) -> str:
    """All string constants but docstrings, and all imported modules, of a file."""
    docs = {
        id(child.body[0].value)
        for child in ast.walk(node)
        if isinstance(child, ast.Module | ast.ClassDef | ast.FunctionDef)
        and child.body
        and isinstance(child.body[0], ast.Expr)
    }
    texts = [
        c.value
        for c in ast.walk(node)
        if isinstance(c, ast.Constant) and isinstance(c.value, str) and id(c) not in docs
    ]
    return "\n".join([*texts, *(c.module or "" for c in ast.walk(node) if isinstance(c, ast.ImportFrom))])


def test_flows_and_integrators_know_no_special_field() -> None:
    """TransEvolve has a room of its own; what it is built upon has not heard of it, not even for its types."""
    below = [path for path in MODULES if top(name_of(path)) in ("flow", "looping", "integrators", "fields")]
    assert [p for p in below if "transevolve" not in p.parts and "transevolve" in p.read_text()] == []


def test_there_are_no_circles() -> None:
    known = {name_of(path) for path in MODULES}
    graph = {
        name_of(path): {m for m in imports(tree(path), everywhere=False) if m in known and m != name_of(path)}
        for path in MODULES
        if path.name != "__init__.py"
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"imports go round in a circle: {' → '.join(error.args[1])}")


def loaded_by(statement: str) -> set[str]:
    """Which heavy libraries a statement brings into a fresh interpreter."""
    code = f"import sys\n{statement}\nprint(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


def test_the_words_need_no_torch() -> None:
    words = [name_of(path) for path in MODULES if top(name_of(path)) in LIGHT and "parts" not in path.parts]
    assert "odeum.architectures.hyper" in words
    assert loaded_by(f"import odeum, {', '.join(words)}") == set()
    assert loaded_by("import odeum; odeum.Layered, odeum.Shape, odeum.OdeumError") == set()
    looks = "odeum.lab.data.sniffing, odeum.lab.data.files, odeum.lab.data.split_names, odeum.lab.data.homes"
    assert loaded_by(f"import {looks}") == set()  # the first look at the data
    assert loaded_by("import odeum.lab.tasks") == set()  # the declarations of all kinds of tasks
    assert loaded_by("import odeum.lab.cli, odeum.lab.study.statistics, odeum.lab.train.distributed.ranks") == set()


def test_the_core_needs_torch_alone() -> None:
    assert loaded_by("import odeum; odeum.Encoder, odeum.build, odeum.set_solver") <= {"torch", "numpy"}


def test_tables_are_made_without_a_model() -> None:
    assert "torch" not in loaded_by("import odeum.lab.study.report, odeum.lab.papers")
    assert "torch" not in loaded_by(
        "import odeum.lab.cli; odeum.lab.cli.main(['table', 'zhong2022/table1', '--format', 'md'])"
    )


def test_public_names_exist() -> None:
    import odeum

    assert all(getattr(odeum, name) is not None for name in odeum.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        odeum.nothing  # noqa: B018
