"""What a user and an editor meet first: signatures, sentences and reprs."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

import odeum


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
