"""docs/extending.md: each file on the page is complete, short, and does in the command line what the page says."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from registries import kept_registries
from test_readme import BLOCK, ROOT

import odeum
from odeum.decode import beam_search, generate
from odeum.decode.common import cacheable
from odeum.errors import OdeumError
from odeum.flow import Flow
from odeum.integrators import HEUN, RK4, FixedSteps, RungeKutta
from odeum.lab.cli import main
from odeum.registry.plugins import load_plugin

PAGE = (ROOT / "docs/extending.md").read_text()
BLOCKS = BLOCK.findall(PAGE)
FILES = {match[1]: code for code in BLOCKS if (match := re.match(r"# (\w+\.py)\n", code))}
SHELL = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [shlex.split(line)[1:] for block in SHELL for line in block.splitlines()]
SMALLER = ["--train.steps=2", "--train.batch_size=8", "--model.width=16", "--model.depth=2", "--format=json"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the files of the page; what they register is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    with kept_registries():
        yield
    forget()


def forget() -> None:
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_each_idea_is_at_most_30_lines_and_is_compared() -> None:
    assert set(FILES) == {"ralston.py", "convolution.py", "ab2.py", "pull.py", "parity.py"}
    assert {name: len(code.splitlines()) for name, code in FILES.items() if len(code.splitlines()) > 30} == {}
    assert {words[words.index("--plugin") + 1] for words in COMMANDS if words[0] == "compare"} == set(FILES)


def test_the_built_in_family_of_the_page_is_the_file() -> None:
    shown = re.search(r"^```\n(@register\.architecture.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown is not None and (ROOT / "odeum/architectures/hyper.py").read_text().endswith(shown[1])


def in_this_process(words: list[str]) -> list[str]:
    return [*words, "--jobs", "1"] if words[0] == "compare" else words


def name_of(words: list[str]) -> str:
    return f"{words[0]}-{words[words.index('--plugin') + 1]}"


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(
    "words",
    [
        *(pytest.param(in_this_process(words), id=name_of(words)) for words in COMMANDS),
        # each process that a comparison starts imports torch: as the page says it, when there is time
        *(
            pytest.param(words, id=f"{name_of(words)}-side-by-side", marks=pytest.mark.slow)
            for words in COMMANDS
            if words[0] == "compare"
        ),
    ],
)
def test_the_commands_of_the_page(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if words[0] != "compare":
        assert main(words) == 0
        assert words[1] in capsys.readouterr().out
        return
    assert main([*words, *SMALLER, "--match=steps", "--out", "runs"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert ",".join(row["architecture"] for row in rows) == words[words.index("--architectures") + 1]
    assert all(row["test_mean"] > 0 and row["steps"] == 2 and not row["diverged"] for row in rows)


def test_a_run_without_its_plugin_is_refused_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "digits", "--architecture", "pull", "--plugin", "pull.py", "--out", "run"]
    with kept_registries():
        assert main([*train, *SMALLER[:-1]]) == 0
    forget()
    capsys.readouterr()
    assert main(["evaluate", "run"]) == 2
    assert f"    {capsys.readouterr().err}" in PAGE


def test_a_run_of_the_task_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "parity", "--plugin", "parity.py", "--architecture", "parallel", "--out", "run"]
    assert main([*train, *SMALLER[:-1]]) == 0
    capsys.readouterr()
    assert main(["predict", "run", "--plugin", "parity.py", "--text", "0 1 1"]) == 0
    assert re.search("odd|even", capsys.readouterr().out)


def test_the_test_of_the_page_is_one() -> None:
    run = from_page("test_pull")
    for line in ("every weight learns", "takes plain weights", "is saved and loaded"):
        run(line)


# ------------------------------------------------------------------------------------------ what is true of them


def from_page(name: str) -> Any:
    """A class of a block that is no file; the file before it is what it goes on from."""
    space: dict[str, Any] = {}
    for code in BLOCKS:
        if re.match(r"# \w+\.py\n", code):
            space = {"__name__": "page"}
        exec(compile(code, "extending.md", "exec", dont_inherit=True), space)
        if name in space:
            return space[name]
    raise AssertionError(f"docs/extending.md has no {name}")


@pytest.mark.parametrize("method", ["euler", "rk4", "ralston", "ab2"])
@pytest.mark.usefixtures("float64")
def test_the_convolution_decodes_what_it_computes(method: str) -> None:
    from_page("CachedConvolution")
    load_plugin("ralston.py")
    load_plugin("ab2.py")
    sizes = {"width": 16, "heads": 2, "depth": 3, "vocabulary": 20, "length": 24}
    models = {}
    for name in ("convolution", "cached-convolution"):
        torch.manual_seed(0)
        models[name] = odeum.build(f"parallel:attention={name},method={method}", odeum.Language(**sizes))
    plain, cached = (model.eval() for model in models.values())
    with torch.no_grad():  # the weights of a field are keyed by its class
        for mine, other in zip(cached.parameters(), plain.parameters(), strict=True):
            mine.copy_(other)
    assert not cacheable(plain) and cacheable(cached)
    ids = torch.randint(20, (2, 7))
    padded = torch.cat((torch.zeros(2, 4, dtype=torch.long), ids), dim=1)
    mask = torch.tensor([[0] * 4 + [1] * 7] * 2)
    expected = generate(plain, ids, max_new_tokens=9, temperature=0)
    for model in (plain, cached):
        torch.testing.assert_close(model(ids).logits, plain(ids).logits)
        assert torch.equal(generate(model, ids, max_new_tokens=9, temperature=0), expected)
        assert torch.equal(generate(model, padded, mask, max_new_tokens=9, temperature=0)[:, 4:], expected)


@pytest.mark.usefixtures("float64")
def test_a_beam_carries_what_the_convolution_keeps() -> None:
    from_page("CachedConvolution")
    sizes = odeum.Translation(width=16, heads=2, depth=2, vocabulary=20, length=24)
    model = odeum.build("parallel:attention=cached-convolution,method=rk4", sizes).eval()
    source = torch.randint(3, 20, (3, 7))
    found = [beam_search(model, source, beam=3, max_length=9, use_cache=kept) for kept in (True, False)]
    assert cacheable(model) and found[0] == found[1]


def test_ralston_steps_what_the_page_names() -> None:
    load_plugin("ralston.py")
    for name in ("macaron", "ode-transformer", "strang", "pull"):
        if name == "pull":
            load_plugin("pull.py")
        stack = odeum.build(f"{name}:method=ralston", odeum.Shape(width=8, heads=2, depth=2))
        assert stack(torch.randn(1, 3, 8)).isfinite().all()
    with pytest.raises(OdeumError, match="claims order 3, but its coefficients have order 2"):
        odeum.Tableau("ralston", order=3, c=(0, 2 / 3), a=((), (2 / 3,)), b=(1 / 4, 3 / 4))


@pytest.mark.usefixtures("float64")
def test_ab2_is_of_second_order_and_refuses_what_it_would_drop() -> None:
    method = load_plugin("ab2.py").AB2()
    field, x = odeum.Sum(*odeum.terms(odeum.Shape(width=8, heads=2, depth=1))), torch.randn(2, 5, 8)
    exact = Flow(field, FixedSteps(RungeKutta(RK4), 256))(x)
    errors = [(Flow(field, FixedSteps(method, steps))(x) - exact).norm().item() for steps in (32, 64)]
    assert 3.5 < errors[0] / errors[1] < 4.5
    with pytest.raises(OdeumError, match="ab2 adds all terms in one step and would drop the norm after each"):
        odeum.build("post-norm:method=ab2", odeum.Shape(width=8, heads=2, depth=2))
    with pytest.raises(OdeumError, match="gradient=adjoint cannot be combined with ab2: it forgets the forward pass"):
        odeum.build("parallel:method=ab2,gradient=adjoint", odeum.Shape(width=8, heads=2, depth=2))
    with pytest.raises(OdeumError, match="ab2 remembers earlier steps, and a Flow or a Stack keeps them"):
        method.step(field, 0.0, 1.0, x, odeum.Context())


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.usefixtures("float64")
def test_the_heun_of_the_page_is_heun(dropout: float) -> None:
    field, x = odeum.Sum(*odeum.terms(odeum.Shape(width=8, heads=2, dropout=dropout))), torch.randn(2, 5, 8)
    ends = []
    for method in (from_page("Heun")(), RungeKutta(HEUN)):
        torch.manual_seed(1)
        ends.append(Flow(field, FixedSteps(method, 3))(x))
    torch.testing.assert_close(*ends)


def test_pull_reads_the_weights_of_sequential() -> None:
    load_plugin("pull.py")
    sequential, pull = (odeum.build(name, odeum.Shape(width=8, heads=2, depth=2)) for name in ("sequential", "pull"))
    pull.load_state_dict(sequential.state_dict())
    weightless = odeum.build("pull:strength=0", odeum.Shape(width=8, heads=2, depth=2))
    weightless.load_state_dict(pull.state_dict())
    x = torch.randn(2, 5, 8)
    assert torch.equal(weightless(x), sequential(x)) and not torch.equal(pull(x), sequential(x))
