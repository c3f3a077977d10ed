"""Plugins: names from a file that the user gives, an installed package, or nobody; and what runs say about them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odeum.errors import Notice, OdeumError
from odeum.lab.cli import main
from odeum.lab.tasks import KINDS
from odeum.registry.names import ARCHITECTURES, METHODS
from odeum.registry.plugins import (
    GROUP,
    REGISTRIES,
    check_requirements,
    load_installed,
    load_named,
    load_plugin,
    unavailable_elsewhere,
)

IDEAS = '''
from dataclasses import dataclass
from torch import nn
import odeum
from odeum import Field, Scaled, Sum

odeum.register.tableau(odeum.Tableau("ralston", order=2, c=(0.0, 2 / 3), a=((), (2 / 3,)), b=(1 / 4, 3 / 4)))

class Neighbours(Field):
    """A convolution over the positions."""
    def __init__(self, width):
        super().__init__()
        self.map = nn.Conv1d(width, width, 3, padding=1)
    def forward(self, t, x, context):
        return self.map(x.transpose(1, 2)).transpose(1, 2)

odeum.register.field("neighbours", lambda shape: Neighbours(shape.width), about="a convolution")

class ToMean(Field):
    def forward(self, t, x, context):
        return x.mean(dim=1, keepdim=True) - x

@odeum.register.architecture("pull", reference="nobody, 2026")
@dataclass(frozen=True)
class Pull(odeum.Stepped):
    """Every particle is drawn to the mean."""
    strength: float = 0.1
    def field(self, shape):
        return Sum(*odeum.terms(shape), Scaled(self.strength, ToMean()))
'''


def forget(root: Path, entries: list[dict[str, Any]]) -> None:
    """As in a process that has not loaded a plugin yet."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(root)):
            del sys.modules[name]
    for registry, before in zip(REGISTRIES, entries, strict=True):
        registry.entries.clear()
        registry.entries.update(before)


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A working directory with the ideas in it; nothing registered survives."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_ideas.py").write_text(IDEAS)
    entries = [dict(registry.entries) for registry in REGISTRIES]
    yield lambda: forget(tmp_path, entries)
    forget(tmp_path, entries)


@pytest.mark.usefixtures("without_plots")
def test_a_file_gives_names_to_every_verb(fresh: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = ["--plugin", "my_ideas.py"]
    names = "sequential,pull:strength=0.2,parallel:method=ralston,parallel:attention=neighbours"
    short = ["--seeds", "1", "--train.steps", "2", "--train.batch_size", "8", "--model.depth", "2", "--out", "runs"]
    assert main(["compare", "digits", "--architectures", names, *short, *plugin, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["architecture"] for row in rows][:2] == ["sequential", "pull:strength=0.2"]
    run = Path("runs/pull-strength-0.2/seed-0")
    for name in ("run.json", "config.json"):
        record = json.loads((run / name).read_text())
        assert record["record"]["options"]["strength"] == 0.2
        [need] = record["plugins"]
        assert (need["what"], need["name"], need["file"], len(need["sha256"])) == (
            "architecture", "pull", "my_ideas.py", 64,
        )  # fmt: skip
    assert "plugins" not in json.loads(Path("runs/sequential/seed-0/config.json").read_text())

    fresh()
    assert main(["evaluate", str(run)]) == 2
    sentence = "this run needs the architecture 'pull' of plugin my_ideas.py; add --plugin my_ideas.py"
    assert sentence in capsys.readouterr().err
    assert main(["report", "runs"]) == 0  # loads no model
    assert main(["evaluate", str(run), *plugin]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert main(["evaluate", "runs/sequential/seed-0", "--solver", "ralston", *plugin]) == 0

    fresh()
    Path("my_ideas.py").write_text(IDEAS + "# later\n")
    assert main(["evaluate", str(run), *plugin]) == 0
    assert "'pull' may not be what this run was made with: plugin my_ideas.py" in capsys.readouterr().err


def test_its_names_are_listed_described_guessed_and_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--plugin=my_ideas.py"]) == 0
    listed = capsys.readouterr().out
    assert "Every particle is drawn to the mean (nobody, 2026)" in listed
    assert "ralston" in listed and "A convolution" in listed
    options = "pull: method, steps, independent, sharing, schedule, gradient, strength"
    assert options in " ".join(listed.split())
    assert main(["describe", "pull:method=ralston", "--model", "vit_8"]) == 0  # loaded once is loaded
    assert "2/3 k1" in capsys.readouterr().out
    assert main(["describe", "pul"]) == 2
    assert "did you mean 'pull'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "pull" in capsys.readouterr().out


def test_one_plugin_may_come_twice(fresh: Any) -> None:
    first = load_plugin("my_ideas.py")
    assert load_plugin(str(Path("my_ideas.py").resolve())) is first
    sys.modules["again"] = sys.modules.pop("my_ideas")
    assert load_plugin("./my_ideas.py") is first
    sys.modules.pop("again")
    second = load_plugin("my_ideas.py")
    assert second is not first and type(ARCHITECTURES["pull"]) is second.Pull
    fresh()
    Path("torch.py").write_text("import odeum\nodeum.register.tableau(odeum.tableaux.EULER._replace(name='mine'))")
    assert load_plugin("torch.py").__name__ != "torch"
    assert "mine" in METHODS


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("x = 1\ny = = 2\n", "the plugin 'bad.py' fails at line 2: invalid syntax"),
        ("x = 1\n\nx.y\n", "the plugin 'bad.py' fails at line 3: AttributeError: 'int' object has no attribute 'y'"),
        ("import nothing_of_that_name\n", "fails at line 1: ModuleNotFoundError: No module named"),
        ("import sys\nsys.exit(0)\n", "the plugin 'bad.py' fails at line 2: SystemExit: 0"),
        ("import odeum\nodeum.register.method('rk4', int)\n", "at line 2: a method 'rk4' already exists"),
        ("\0", "the plugin 'bad.py' fails"),
    ],
)
def test_a_broken_plugin_is_a_sentence(source: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.py").write_text(source)
    assert main(["list", "--plugin", "bad.py"]) == 2
    told = capsys.readouterr()
    assert sentence in told.err and told.err.count("\n") == 1 and not told.out
    with pytest.raises(OdeumError) as error:
        main(["list", "--plugin", "bad.py", "--debug"])
    assert error.value.__cause__ is not None, "the traceback should show the plugin's own error"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--plugin", "nothing.py"], "there is no plugin 'nothing.py'"),
        (["--plugin", "some/where.py"], "there is no plugin 'some/where.py'"),
        (["--plugin", "nothing_at.all"], "there is no module 'nothing_at.all'; a plugin is a file such as my_ideas.py"),
        (["--plugin", "my_idea"], "there is no module 'my_idea'"),
        (["--plugin"], "--plugin needs a value"),
        (["--plugin", "--format"], "--plugin needs a value"),
        (["--plugin="], "--plugin needs a value"),
    ],
)
def test_a_plugin_that_is_not_there(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *words]) == 2
    assert sentence in capsys.readouterr().err


def install(root: Path, module: str, source: str) -> None:
    """A package as an installer leaves it."""
    (root / f"{module}.py").write_text(source)
    info = root / f"{module}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.5\n")
    (info / "top_level.txt").write_text(f"{module}\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{module} = {module}\n")


def test_installed_packages_are_found_and_a_broken_one_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site, "good_ideas", IDEAS)
    install(site, "bad_ideas", "raise RuntimeError('out of order')")
    monkeypatch.syspath_prepend(site)
    assert main(["list"]) == 0
    told = capsys.readouterr()
    assert "Every particle is drawn to the mean" in told.out
    assert "the plugin 'bad_ideas' of the package bad_ideas is left out: RuntimeError: out of order" in told.err
    from odeum.registry.plugins import requirements

    [need] = requirements(ARCHITECTURES["pull"])
    assert need == {"what": "architecture", "name": "pull", "package": "good_ideas", "version": "1.5"}
    check_requirements({"plugins": [need]})
    with pytest.warns(Notice, match="the package good_ideas is not the same"):
        check_requirements({"plugins": [need | {"version": "1.4"}]})
    fresh()
    with pytest.raises(OdeumError, match=r"of the package good_ideas; install good_ideas==1\.5"):
        check_requirements({"plugins": [need]})
    with pytest.warns(Notice, match="bad_ideas"):
        load_installed()


def test_a_package_installed_meanwhile_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: Any) -> None:
    """What is remembered of the packages ends when one comes or goes."""
    monkeypatch.syspath_prepend(tmp_path)
    load_installed()
    assert "pull" not in ARCHITECTURES
    install(tmp_path, "good_ideas", IDEAS)
    load_installed()
    assert "pull" in ARCHITECTURES


def test_a_run_folder_never_runs_a_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text("open('ran', 'w').close()")
    run = tmp_path / "run"
    run.mkdir()
    (run / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")  # no tensors
    for plugins in ([{"what": "architecture", "name": "evil", "file": str(evil)}], "evil.py", [7], {"a": 1}, [{}]):
        config = {"kind": "Vision", "architecture": "evil", "model": {}, "plugins": plugins}
        (run / "config.json").write_text(json.dumps(config))
        assert main(["evaluate", str(run)]) == 2
        told = capsys.readouterr().err
        assert "this run needs" in told or "is not the configuration of an Odeum run" in told
    assert not Path("ran").exists() and not (tmp_path / "ran").exists()


def test_what_other_processes_would_find(tmp_path: Path) -> None:
    """A plugin's names and those of a neighbour that it imports, not what this program registered by itself."""
    import odeum
    from odeum.registry.spelling import parse

    (tmp_path / "ideas.py").write_text(f"import neighbour_of_ideas\n{IDEAS}")
    (tmp_path / "neighbour_of_ideas.py").write_text(
        'import odeum\nodeum.register.tableau(odeum.Tableau("next-door", order=1, c=(0.0,), a=((),), b=(1.0,)))\n'
    )
    load_named([str(tmp_path / "ideas.py")])
    brought = [parse("pull"), parse("parallel:method=ralston"), parse("parallel:method=next-door"), parse("rk4")]
    assert unavailable_elsewhere(brought, (KINDS, "images")) == []
    odeum.register.tableau(odeum.Tableau("at-home", order=1, c=(0.0,), a=((),), b=(1.0,)))
    assert unavailable_elsewhere([*brought, parse("parallel:method=at-home")], (KINDS, "images")) == [
        "the method 'at-home'"
    ]
    load_named([])
    assert unavailable_elsewhere(brought[:1], (KINDS, "images")) == ["the architecture 'pull'"]


def test_code_that_fails_when_it_is_used_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "late.py").write_text("import odeum\n\nodeum.register.method('late', lambda: 1 / 0)\n")
    words = ["describe", "parallel:method=late", "--plugin", "late.py"]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert "late.py' fails at line 3: ZeroDivisionError: division by zero" in err and err.count("\n") == 1
    with pytest.raises(ZeroDivisionError):
        main([*words, "--debug"])


def test_the_documented_entry_point_group_is_the_one_that_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    assert f'[project.entry-points."{GROUP}"]' in page
