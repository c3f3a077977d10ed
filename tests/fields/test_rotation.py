"""The random feed-forward: rotations that are rotations, the published formula, seeds and folding."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from odeum.errors import OdeumError
from odeum.fields import Context
from odeum.fields.transevolve.rotation import (
    ROTATIONS,
    OrthogonalRotation,
    PublishedRotation,
    RotationFeedForward,
    fold,
)


@pytest.mark.parametrize("size, out", [(12, 48), (48, 12), (7, 20), (16, 16)])
def test_orthogonal_frames_are_orthonormal_and_move_smoothly(size: int, out: int) -> None:
    rotation = OrthogonalRotation(size, out, seed=3).double()
    torch.nn.init.normal_(rotation.singular)
    identity = torch.eye(min(size, out), dtype=torch.float64)
    for t in (0.0, 0.5, 5.0):
        u, v = rotation.frames(t)
        assert u.shape == (size, min(size, out)) and v.shape == (min(size, out), out)
        torch.testing.assert_close(u.T @ u, identity, atol=1e-6, rtol=0)
        torch.testing.assert_close(v @ v.T, identity, atol=1e-6, rtol=0)
        torch.testing.assert_close(rotation.matrix(t), (u * rotation.singular) @ v)
    near, far = (float((rotation.frames(1.0 + dt)[0] - rotation.frames(1.0)[0]).detach().norm()) for dt in (1e-3, 1.0))
    assert 0 < near < 1e-2 * far


def test_the_orthogonal_matrix_is_as_large_as_a_glorot_matrix() -> None:
    for size, out in ((64, 256), (256, 64)):
        matrix = OrthogonalRotation(size, out).matrix(0.0).detach()
        glorot = torch.nn.init.xavier_uniform_(torch.empty(out, size))
        assert float(matrix.std() / glorot.std()) == pytest.approx(1.0, abs=0.03)


def test_the_published_formula() -> None:
    """U S V as in the released code, in numpy: random angles times depth, sines beside cosines, over √out."""
    for size, out in ((6, 24), (24, 6)):
        rotation = PublishedRotation(size, out, seed=5).double()
        c, p = rotation.coefficients.numpy(), rotation.phases.numpy()
        s = np.zeros((size, out))
        np.fill_diagonal(s, rotation.singular.detach().numpy())
        for t in (0.0, 1.0, 4.0):
            a = t * np.pi / size * np.arange(size // 2) * c
            b = t * np.pi / out * np.arange(out // 2) * p
            u, v = (np.concatenate((np.sin(x), np.cos(x)), axis=1) / np.sqrt(out) for x in (a, b))
            np.testing.assert_allclose(rotation.matrix(t).detach().numpy(), u @ s @ v, atol=1e-10)


def test_the_published_kind_is_degenerate_at_depth_0_and_ours_is_not() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 16)
    published = RotationFeedForward(16, kind="published")
    torch.nn.init.normal_(published.down.bias)
    out = published(0.0, x, Context())
    torch.testing.assert_close(out, published.down.bias.expand_as(out))
    assert torch.linalg.matrix_rank(published.up.matrix(0.0)) == 1
    ours = RotationFeedForward(16)
    assert torch.linalg.matrix_rank(ours.up.matrix(0.0)) == 16
    assert float(ours(0.0, x, Context()).detach().std()) > 0.1


@pytest.mark.parametrize("kind", ROTATIONS)
def test_seeds_make_the_matrices_and_are_all_that_is_saved(kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 16)
    field = RotationFeedForward(16, kind=kind, seed=11)
    for p in field.parameters():
        torch.nn.init.normal_(p)
    state = field.state_dict()
    assert sum(v.numel() for v in state.values()) == sum(p.numel() for p in field.parameters()) + 2
    other = RotationFeedForward(16, kind=kind, seed=12)
    assert not torch.equal(other.up.matrix(1.0), field.up.matrix(1.0))
    other.load_state_dict(state)
    assert torch.equal(other(2.0, x, Context()), field(2.0, x, Context()))
    assert torch.equal(copy.deepcopy(field)(2.0, x, Context()), field(2.0, x, Context()))
    again = RotationFeedForward(16, kind=kind, seed=11)
    again.load_state_dict(state)
    assert torch.equal(again(2.0, x, Context()), field(2.0, x, Context()))


def test_matrices_that_were_given_are_saved() -> None:
    rotation = PublishedRotation(4, 8, seed=1)
    rotation.keep(torch.ones(4, 2), torch.ones(8, 4))
    other = PublishedRotation(4, 8, seed=2)
    other.keep(torch.zeros(4, 2), torch.zeros(8, 4))
    other.load_state_dict(rotation.state_dict())
    assert torch.equal(other.matrix(1.0), rotation.matrix(1.0)) and bool((other.phases == 1).all())


@pytest.mark.parametrize("kind", ROTATIONS)
@pytest.mark.parametrize("rows", [1, 200])
def test_factored_multiplied_out_and_folded_agree(kind: str, rows: int) -> None:
    """Few rows are sent through the factors one by one, many through the product; folding keeps the product."""
    torch.manual_seed(0)
    field = RotationFeedForward(16, kind=kind).double()
    x = torch.randn(rows, 16, dtype=torch.float64)
    one = x @ field.up.matrix(3.0) + field.up.bias
    torch.testing.assert_close(field.up(x, 3.0), one)
    field.eval()
    fold(field)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(field.up(x, 3.0), one)
        assert list(field.up.folded) == [3.0]
        field.train()
        field.up.singular.mul_(2.0)
        field.eval()
        torch.testing.assert_close(field.up(x, 3.0), x @ field.up.matrix(3.0) + field.up.bias)


def test_counts() -> None:
    """The published code keeps 3 · width singular values more, which multiply nothing."""
    field = RotationFeedForward(16)
    assert sum(p.numel() for p in field.parameters()) == 16 + 64 + 16 + 16
    assert field.up.dead_parameters == 0 and field.down.dead_parameters == 48


def test_unknown_kinds_and_odd_widths_are_refused_in_words() -> None:
    with pytest.raises(OdeumError, match="known: orthogonal, published"):
        RotationFeedForward(16, kind="orthogonl")
    with pytest.raises(OdeumError, match="even widths"):
        RotationFeedForward(15, kind="published")


@pytest.mark.parametrize("kind", ROTATIONS)
def test_a_model_built_without_memory_is_drawn_when_loaded(kind: str) -> None:
    field = RotationFeedForward(16, kind=kind, seed=11)
    with torch.device("meta"):
        empty = RotationFeedForward(16, kind=kind)
    empty.load_state_dict(field.state_dict(), assign=True)
    assert torch.equal(empty.up.matrix(1.0), field.up.matrix(1.0))


@pytest.mark.parametrize("kind", ROTATIONS)
def test_a_cast_model_is_exact_on_reload(kind: str) -> None:
    """What is kept in few digits is not what the seed gives in more: a cast draws anew, as a reload does."""
    field = RotationFeedForward(16, kind=kind, seed=3).bfloat16().double()
    other = RotationFeedForward(16, kind=kind, seed=4).double()
    other.load_state_dict(field.state_dict())
    assert torch.equal(other.up.matrix(2.0), field.up.matrix(2.0))


def test_a_folded_matrix_follows_its_weights_and_keeps_their_precision() -> None:
    field, x = RotationFeedForward(16).eval(), torch.randn(3, 16)
    fold(field)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            field(1.0, x, Context())
        assert torch.equal(field.up(x, 1.0), x @ field.up.matrix(1.0) + field.up.bias)
        field.up.singular.mul_(1.5)
        assert torch.equal(field.up(x, 1.0), x @ field.up.matrix(1.0) + field.up.bias)


def test_given_matrices_take_the_models_precision_and_must_fit() -> None:
    rotation = PublishedRotation(4, 8)
    rotation.keep(torch.ones(4, 2, dtype=torch.float64), torch.ones(8, 4, dtype=torch.float16))
    assert rotation.matrix(1.0).dtype == torch.float32
    with pytest.raises(OdeumError, match=r"phases of the random feed-forward are \(4, 8\), not \(8, 4\)"):
        rotation.keep(torch.ones(4, 2), torch.ones(4, 8))
