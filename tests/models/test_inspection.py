"""Inspection: states are those of the stack, measures are what they say, exponents and errors obey the theory."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import odeum
from odeum import inspection
from odeum.architectures.parts.solvers import make_method
from odeum.errors import OdeumError
from odeum.fields import Field
from odeum.fields.base import Context
from odeum.flow import Flow, Stack
from odeum.inspection import effective_rank, inspect, local_error, lyapunov
from odeum.integrators import FixedSteps
from odeum.integrators.gradients import GradientSolver
from odeum.integrators.streams import Streams
from odeum.models.settings import Classification, Language, Translation, Vision
from odeum.registry.names import ARCHITECTURES

LANGUAGE = Language(width=16, heads=2, depth=4, length=12, vocabulary=20)


def model_of(architecture: str, settings: Any = LANGUAGE) -> Any:
    torch.manual_seed(0)
    model: Any = odeum.build(architecture, settings).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("architecture", ["sequential", "parallel", "rk4", "hyper", "macaron", "transevolve", "dense"])
def test_states_are_those_of_the_stack(architecture: str) -> None:
    model = model_of(architecture)
    ids = torch.randint(0, 20, (2, 9))
    found = inspect(model, ids, keep=2)
    path: list[torch.Tensor] = []
    model.hidden(ids, run=lambda x, context: [*path_of(model.stack, x, context, path)][-1])
    for state, expected in zip(found.states, path, strict=False):
        assert torch.allclose(torch.from_numpy(state), expected, atol=1e-5)
    assert found.answer is not None and found.lens is not None
    assert (found.lens[-1] == found.answer).all() and found.layers[-1].agreement == 1.0
    assert (model(ids).logits.argmax(-1).numpy() == found.answer).all()


def path_of(stack: Any, x: torch.Tensor, context: Context, path: list[torch.Tensor]) -> list[torch.Tensor]:
    layers = [flow for flow in stack.flows if hasattr(flow, "body")]
    if layers:  # a block of TransEvolve holds the layers
        path += list(layers[0].trajectory(x, context))
    else:
        path += list(stack.trajectory(x, context))
    return path


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_every_architecture_can_be_inspected(architecture: str) -> None:
    found = inspect(model_of(architecture), torch.randint(0, 20, (2, 7)))
    assert found.layers and all(math.isfinite(layer.displacement) for layer in found.layers)
    assert found.particles().shape == (len(found.layers) + 1, 7, 2)
    assert found.as_dict()["layers"]


def test_measures_by_hand() -> None:
    model = model_of("sequential")
    ids = torch.randint(0, 20, (3, 8))
    found = inspect(model, ids, keep=3)
    states = torch.from_numpy(found.states)
    x, y = states[1], states[2]
    layer = found.layers[1]
    assert layer.displacement == pytest.approx(float(((y - x).norm(dim=-1) / x.norm(dim=-1)).mean()), rel=1e-5)
    assert layer.norm == pytest.approx(float(y.norm(dim=-1).mean()) / 4, rel=1e-5)
    unit = nn.functional.normalize(y, dim=-1)
    cosines = unit @ unit.transpose(1, 2)
    off = ~torch.eye(8, dtype=torch.bool)
    assert layer.alikeness == pytest.approx(float(cosines[:, off].mean()), rel=1e-4)
    step = nn.functional.cosine_similarity(y - x, x - states[0], dim=-1)
    assert layer.turn == pytest.approx(float(step.acos().rad2deg().mean()), rel=1e-4)
    names = [(branch.layer, branch.term) for branch in found.branches]
    assert names == [(i, term) for i in range(4) for term in ("attention", "feedforward")]
    assert all(branch.displacement is not None for branch in found.branches)
    # Lie–Trotter over Euler steps: a term moves the stream by its own branch
    assert all(branch.displacement == pytest.approx(branch.ratio, rel=1e-4) for branch in found.branches)


def test_entropy_of_attention() -> None:
    """Equal scores are uniform over the positions that a query sees."""
    model = model_of("sequential")
    for name, parameter in model.named_parameters():
        if "qkv" in name:
            parameter.data[:32].zero_()  # queries and keys
    found = inspect(model, torch.randint(0, 20, (2, 6)))
    expected = sum(math.log(n) for n in range(1, 7)) / 6
    entropies = [branch.entropy for branch in found.branches if branch.term == "attention"]
    assert entropies == pytest.approx([expected] * 4, rel=1e-5)


def test_entropy_of_attention_to_earlier_layers_and_to_a_memory() -> None:
    """Equal scores are uniform over all keys: MoDA's of earlier layers too, and those of the memory without padding."""
    model = model_of("moda")
    for name, parameter in model.named_parameters():
        if "qkv" in name:
            parameter.data[:32].zero_()
    entropies = [b.entropy for b in inspect(model, torch.randint(0, 20, (2, 6))).branches if b.term == "attention"]
    assert entropies == pytest.approx([sum(math.log(n + i) for n in range(1, 7)) / 6 for i in range(4)], rel=1e-5)
    model = model_of("sequential", Translation(width=16, heads=2, depth=2, length=12, vocabulary=20))
    for name, parameter in model.named_parameters():
        if ".q." in name:
            parameter.data.zero_()
    ids, lengths = torch.randint(1, 20, (3, 7)), torch.tensor([[7], [2], [5]])
    mask = (torch.arange(7) < lengths).long()
    found = inspect(model, {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids[:, :4]})
    entropies = [branch.entropy for branch in found.branches if branch.term == "cross"]
    assert entropies == pytest.approx([float(lengths.double().log().mean())] * 2, rel=1e-5)


@pytest.mark.parametrize("architecture", ["hyper:streams=3", "mhc", "two-lanes"])
def test_streams_of_every_layer(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = model_of(architecture), []
    ids = torch.randint(0, 20, (2, 5))
    calls = [
        flow.register_forward_hook(lambda _, given, out: path.append((given[0], out))) for flow in model.stack.flows
    ]
    with monkeypatch.context() as patch:
        patch.setattr(Streams, "finish", lambda self, x, context: x)  # the output of the last layer is its streams
        model(ids)
    for call in calls:
        call.remove()
    found = inspect(model, ids)
    for layer, (before, after) in zip(found.layers, path, strict=True):
        before = before if before.dim() == 4 else before.unsqueeze(-2)
        moved = ((after - before).norm(dim=-1) / before.norm(dim=-1)).mean((0, 1))
        assert layer.streams == pytest.approx((after.norm(dim=-1).mean((0, 1)) / 4).tolist(), rel=1e-4)
        assert layer.stream_displacements == pytest.approx(moved.tolist(), rel=1e-4)
    assert len(path) == 4 and not any("finish" in vars(module) for module in model.modules())


def test_changes_between_layers_are_said() -> None:
    ids = torch.randint(0, 20, (1, 5))
    assert any("between layers" in note for note in inspect(model_of("looped"), ids).notes)
    assert not inspect(model_of("looped:inject=none"), ids).notes and not inspect(model_of("hyper"), ids).notes


def test_padding_is_left_out() -> None:
    model = model_of("sequential", Classification(width=16, heads=2, depth=2, length=12, vocabulary=20, classes=3))
    ids = torch.randint(1, 20, (1, 8))
    mask = torch.ones(1, 12, dtype=torch.long)
    mask[:, 8:] = 0
    padded = torch.cat((ids, torch.zeros(1, 4, dtype=torch.long)), dim=1)
    whole, part = inspect(model, {"input_ids": ids}), inspect(model, {"input_ids": padded, "attention_mask": mask})
    for a, b in zip(whole.layers, part.layers, strict=True):
        assert a.displacement == pytest.approx(b.displacement, rel=1e-4)
        assert a.alikeness == pytest.approx(b.alikeness, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "batch"),
    [
        (
            Vision(width=16, heads=2, depth=2, image_size=8, patch_size=4, classes=5),
            {"images": torch.randn(2, 3, 8, 8)},
        ),
        (
            Translation(width=16, heads=2, depth=2, length=12, vocabulary=20),
            {"input_ids": torch.ones(2, 5, dtype=torch.long), "decoder_input_ids": torch.ones(2, 4, dtype=torch.long)},
        ),
    ],
)
def test_images_and_translations(settings: Any, batch: dict[str, torch.Tensor]) -> None:
    found = inspect(model_of("parallel", settings), batch)
    assert found.lens is not None and found.answer is not None and (found.lens[-1] == found.answer).all()


def test_the_model_is_not_changed_and_training_is_refused() -> None:
    model = model_of("sequential")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inspect(model, torch.randint(0, 20, (1, 5)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(OdeumError, match=r"model\.eval"):
        inspect(model.train(), torch.randint(0, 20, (1, 5)))
    with pytest.raises(OdeumError, match="no stack of layers"):
        inspect(nn.Linear(2, 2).eval(), torch.randn(1, 2))


def test_effective_rank() -> None:
    assert effective_rank(torch.eye(8) - 0.0) == pytest.approx(7.0, rel=1e-3)  # centred, one dimension is gone
    line = torch.linspace(-1, 1, 9)[:, None] * torch.ones(1, 5)
    assert effective_rank(line) == pytest.approx(1.0, abs=1e-6)


class LinearField(Field):
    """dx/dt = A x on each token."""

    def __init__(self, matrix: torch.Tensor) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix)

    def forward(self, t: float, x: torch.Tensor, context: Context) -> torch.Tensor:
        return x @ self.matrix.T


class Only(nn.Module):
    """A stack and nothing around it."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stack(x, Context())


STABILITY = {
    "euler": lambda z: 1 + z,
    "midpoint": lambda z: 1 + z + z**2 / 2,
    "rk4": lambda z: 1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24,
}


def linear_model(method: str, h: float, layers: int = 40) -> tuple[Any, np.ndarray]:
    """Layers of length h through dx/dt = A x with a normal matrix: rotations with growth."""
    blocks = [np.array([[0.3, 1.0], [-1.0, 0.3]]), np.array([[-0.4, 0.5], [-0.5, -0.4]])]
    matrix = torch.zeros(4, 4, dtype=torch.float64)
    for i, block in enumerate(blocks):
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.from_numpy(block)
    turn = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0]
    matrix = turn @ matrix @ turn.T
    flow = Flow(LinearField(matrix), FixedSteps(make_method(method), 1 / h), 0.0, h, layer=h)
    return Only(Stack([flow], [0] * layers)).double().eval(), np.linalg.eigvals(matrix.numpy())


@pytest.mark.parametrize("method", STABILITY)
@pytest.mark.parametrize("h", [1.0, 0.25])
def test_exponents_of_a_linear_field(method: str, h: float) -> None:
    """log |R(h λ)| / h, R the method's stability function."""
    model, values = linear_model(method, h, round(4 / h))
    found = lyapunov(model, {"x": torch.randn(1, 1, 4, dtype=torch.float64)}, 4)
    expected = np.sort(np.log(np.abs(STABILITY[method](h * values))) / h)[::-1]
    assert found == pytest.approx(expected, abs=0.005)


def test_exponents_tend_to_the_real_parts() -> None:
    errors = []
    for h in (0.5, 0.25, 0.125):
        model, values = linear_model("rk4", h, round(40 / h))
        found = lyapunov(model, {"x": torch.randn(1, 1, 4, dtype=torch.float64)}, 4)
        errors.append(np.abs(found - np.sort(values.real)[::-1]).max())
    assert errors[-1] < 0.02


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_local_error_falls_with_the_order(method: str, order: int) -> None:
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    errors = [local_error(linear_model(method, h, 1)[0], {"x": x})[0] for h in (0.2, 0.1)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order + 1, abs=0.15)


def test_exponents_through_attention() -> None:
    """Forward derivatives of the whole layer, against differences of two passes through one layer."""
    model = model_of("sequential", Language(width=4, heads=1, depth=1, length=4, vocabulary=20)).double()
    ids = torch.randint(0, 20, (1, 3))
    calls: list[Any] = []
    handle = model.stack.flows[0].register_forward_pre_hook(lambda _, given: calls.append(given))
    model(ids)
    handle.remove()
    x, context, time = calls[0]
    jacobian = torch.autograd.functional.jacobian(lambda y: model.stack.flows[0](y, context, time), x).view(12, 12)
    found = lyapunov(model, ids, 12)
    assert found.sum() == pytest.approx(float(torch.linalg.slogdet(jacobian)[1]), rel=1e-6)


SMALL = {"width": 8, "heads": 2, "depth": 3, "length": 8, "vocabulary": 20}


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("sequential", Language(**SMALL)),
        ("post-norm", Language(**SMALL)),
        ("rk4:steps=2", Language(**SMALL, positions="rotary")),
        ("parallel:gradient=adjoint,independent=1", Language(**SMALL)),
        ("parallel:weights=knots,knots=2", Language(**SMALL)),
        ("looped:prelude=1,core=1,coda=1,repeats=3,inject=none", Language(**SMALL)),
        ("sequential", Translation(**SMALL)),
    ],
)
def test_exponents_are_singular_values_of_the_whole_depth(architecture: str, settings: Any) -> None:
    """At few layers too, where vectors that start at random have not turned into the directions that grow most."""
    model = model_of(architecture, settings).double()
    ids = torch.randint(1, 20, (2, 4))
    batch = {"input_ids": ids} | ({"decoder_input_ids": ids} if isinstance(settings, Translation) else {})
    stack = inspection.inspected_stack(model)
    calls: list[Any] = []
    handle = stack.register_forward_pre_hook(lambda _, given: calls.append(given))
    model(**batch)
    handle.remove()
    expected = copy.deepcopy(stack)
    for flow in expected.modules():
        if isinstance(flow, Flow) and isinstance(flow.solver, GradientSolver):
            flow.solver = flow.solver.solver  # the adjoint's gradient is not that of the steps
    x, context = calls[0]
    jacobian = torch.autograd.functional.jacobian(lambda y: [*expected.trajectory(y, context)][-1], x)
    values = torch.linalg.svdvals(jacobian[0, :, :, 0].reshape(32, 32))
    time = sum(flow.duration for flow, _ in stack.timed())
    assert lyapunov(model, batch, 3) == pytest.approx((values.log() / time)[:3].numpy(), abs=0.01)


def test_a_state_that_changes_between_layers_has_no_exponents() -> None:
    with pytest.raises(OdeumError, match="between layers"):
        lyapunov(model_of("looped"), torch.randint(0, 20, (1, 5)), 2)
    assert len(local_error(model_of("looped"), torch.randint(0, 20, (1, 5)))) > 4


def test_methods_with_memory_have_no_layer_of_their_own() -> None:
    with pytest.raises(OdeumError, match="from layer to layer"):
        lyapunov(model_of("adams-bashforth"), torch.randint(0, 20, (1, 5)), 2)


def test_sublayers_turn_states_as_their_layer_does() -> None:
    """Of a layer with one zeroed branch, the other sublayer has the layer's displacement and cosine."""
    model = odeum.build("sequential", "language_small", width=16, heads=2, depth=2, vocabulary=19, length=12).eval()
    attention: nn.Module = model.stack.flows[1].field.fields["attention"]  # ty: ignore
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
    result = inspect(model, torch.randint(19, (2, 7)))
    silent, acting = (branch for branch in result.branches if branch.layer == 1)
    assert silent.displacement is None or silent.displacement == 0
    assert acting.cosine == pytest.approx(result.layers[1].cosine) and acting.influence == pytest.approx(
        1 - result.layers[1].cosine
    )


@pytest.mark.parametrize("most", [1, 50, 300])
def test_entropy_in_parts(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts are measured some queries at a time, with the same entropies and weights."""
    settings = Classification(width=16, heads=2, depth=2, length=12, vocabulary=20, classes=3)
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[1, 4:] = 0
    for model, batch in (
        (model_of("sequential"), {"input_ids": torch.randint(0, 20, (3, 9))}),
        (model_of("sequential", settings), {"input_ids": torch.randint(1, 20, (3, 9)), "attention_mask": mask}),
    ):
        monkeypatch.undo()
        whole = inspect(model, batch)
        monkeypatch.setattr(inspection, "MAX_ENTROPY_WEIGHTS", most)
        parts = inspect(model, batch)
        for a, b in zip(whole.branches, parts.branches, strict=True):
            assert a.entropy == (None if b.entropy is None else pytest.approx(b.entropy, rel=1e-5))


def test_padding_has_no_exponents_and_no_error() -> None:
    model = model_of("sequential", Classification(width=8, heads=2, depth=2, length=12, vocabulary=20, classes=3))
    ids = torch.randint(1, 20, (1, 5))
    mask = torch.ones(1, 9, dtype=torch.long)
    mask[:, 5:] = 0
    padded = {"input_ids": torch.cat((ids, torch.zeros(1, 4, dtype=torch.long)), dim=1), "attention_mask": mask}
    alone = {"input_ids": ids, "attention_mask": torch.ones(1, 5, dtype=torch.long)}
    assert lyapunov(model, padded, 40).sum() == pytest.approx(lyapunov(model, alone, 40).sum(), rel=1e-4)
    with pytest.raises(OdeumError, match="from 1 to the 40 numbers"):
        lyapunov(model, padded, 41)
    assert local_error(model, padded) == pytest.approx(local_error(model, alone), rel=1e-4)
    seen = torch.ones(1, 9, dtype=torch.bool)
    seen[:, 5:] = False
    assert local_error(model, padded, seen=~seen) != pytest.approx(local_error(model, alone), rel=1e-4)


@pytest.mark.parametrize(
    ("architecture", "states"),
    [
        ("parallel:weights=knots,knots=3", 4),
        ("rk4:weights=legendre", 4),
        ("parallel:weights=hyper,gradient=adjoint", 4),
        ("sequential:weights=adaln,steps=2", 4),
        ("continuous", 4),
    ],
)
def test_weights_over_time_are_shown_layer_by_layer(architecture: str, states: int) -> None:
    model = model_of(architecture)
    ids = torch.randint(0, 20, (2, 7))
    result = inspect(model, ids, keep=2)
    assert len(result.layers) == states and [layer.time for layer in result.layers] == [0, 1, 2, 3]
    path: list[torch.Tensor] = []
    logits = model.hidden(ids, run=lambda x, context: [*path_of(model.stack, x, context, path)][-1])
    assert logits is not None and np.allclose(result.states[-1], path[-1].detach().numpy(), atol=1e-3)
    assert (model(ids).logits.argmax(-1).numpy() == result.answer).all()
    if architecture != "continuous":
        assert len(local_error(model, ids)) == states
    assert len(lyapunov(model, ids, 2)) == 2
    assert not any("forward" in vars(module) for module in model.modules())


def test_steps_longer_than_a_layer() -> None:
    model = model_of("parallel:weights=knots,knots=2")
    odeum.flow.set_steps(model, 0.5)
    result = inspect(model, torch.randint(0, 20, (1, 5)))
    assert [layer.time for layer in result.layers] == [0, 2]
