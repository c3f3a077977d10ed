"""What a user and an editor meet first: signatures, sentences and reprs."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

import odeum
from odeum.models.factory import ClassificationName, LanguageName, TranslationName, VisionName
from odeum.models.settings import PRESETS

ROOT = Path(__file__).parents[1]


def test_the_encoder_says_all_settings_of_a_shape_with_their_defaults() -> None:
    signature = {name: p.default for name, p in inspect.signature(odeum.Encoder).parameters.items()}
    assert {field.name: field.default for field in fields(odeum.Shape)}.items() <= signature.items()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("d_model", "nn.Transformer's d_model is width here"),
        ("nhead", "is heads here"),
        ("dim_feedforward", "is hidden here"),
        ("batch_first", r"always \[batch, length, width\]"),
        ("dropuot", "did you mean 'dropout'"),
    ],
)
@pytest.mark.parametrize("door", [odeum.Encoder, odeum.Decoder])
def test_settings_of_other_libraries_get_a_sentence(door: type, setting: str, sentence: str) -> None:
    with pytest.raises(odeum.OdeumError, match=f"{door.__name__}.*{sentence}"):
        door(**{setting: 8})


def test_a_layer_says_its_equation_method_and_sizes() -> None:
    shown = repr(odeum.Encoder(width=8, heads=2, depth=2, architecture="rk4:steps=2"))
    for part in (
        "rk4:steps=2, width=8",
        "dx/dt = G(N(x)) + F(N(x))",
        "rk4, order 4",
        "steps=2",
        "heads=2",
        "hidden=32",
    ):
        assert part in shown


def test_editors_see_the_names_that_there_are() -> None:
    tree = ast.parse(inspect.getsource(odeum))
    seen = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    shown = {
        alias.asname: node.module
        for node in ast.walk(seen[0])
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert shown == odeum._HOME_OF


def test_a_name_from_another_room_is_told_where_it_lives() -> None:
    with pytest.raises(AttributeError, match=r"from odeum.integrators import RK4"):
        odeum.RK4  # noqa: B018


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (VisionName, odeum.Vision),
        (LanguageName, odeum.Language),
        (ClassificationName, odeum.Classification),
        (TranslationName, odeum.Translation),
    ],
)
def test_build_promises_the_models_that_it_gives(names: object, settings: type) -> None:
    assert set(get_args(names)) == {name for name, model in PRESETS.items() if type(model) is settings}


def test_type_checkers_know_what_is_built(tmp_path: Path) -> None:
    """ty, on a file of a user: right use passes, wrong use is an error."""
    ty = Path(sys.executable).with_name("ty")
    if not ty.exists():
        pytest.skip("ty is not installed beside this Python")
    right = (
        "import odeum\n"
        "from odeum.models import VisionModel\n"
        "model: VisionModel = odeum.build('rk4', 'deit_tiny')\n"
        "odeum.Encoder(width=8, heads=2, depth=1).shape.width\n"
    )
    wrong = "import odeum\nodeum.Encoder(width='no', heads=2, depth=1)\n"
    for text, code in ((right, 0), (wrong, 1)):
        (tmp_path / "use.py").write_text(text)
        command = [str(ty), "check", "--python", sys.prefix, "--extra-search-path", str(ROOT), "use.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout


def test_every_public_name_says_what_it_is() -> None:
    for name in odeum.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(odeum, name)), f"odeum.{name} has no docstring"


def test_a_record_names_the_version_of_the_code_that_runs() -> None:
    from odeum.lab.train.provenance import versions

    assert versions()["odeum"] == odeum.__version__
