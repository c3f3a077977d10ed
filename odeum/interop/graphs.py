"""A trained model as a graph that runs without Odeum: a program of torch.export, or ONNX; any batch, any length."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import inspect
import io
import warnings
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from odeum.decode.common import Evaluation
from odeum.errors import OdeumError
from odeum.fields.transevolve.rotation import Rotation
from odeum.integrators import Adaptive
from odeum.models.base import OdeumModel
from odeum.storage import write_bytes

TRIED_SIZES = ((2, 7, 5), (3, 11, 4), (1, 4, 8))
"""batch, length and length of the target: what is traced, and what the graph is tried at"""
NEAR_ENOUGH = 1e-3
"""how far a graph may be from the model, as a part of the largest logit"""
ONNX_NEEDS = ("onnx", "onnxscript", "onnxruntime")


class Graph(nn.Module):
    """A model as a function of positional tensors, in the order of `names`, that gives its logits."""

    def __init__(self, model: OdeumModel) -> None:
        super().__init__()
        self.model = model
        self.names = list(model.example("meta"))
        if "attention_mask" in inspect.signature(model.forward).parameters:
            self.names.insert(1, "attention_mask")

    def forward(self, *tensors: Tensor) -> Tensor:
        """The logits."""
        return self.model(**dict(zip(self.names, tensors, strict=True))).logits

    def example(self, batch: int, length: int, target: int) -> tuple[Tensor, ...]:
        """Inputs of these sizes that differ from place to place; the first row of a text is padded on the left."""
        random = torch.Generator().manual_seed(batch)
        inputs: dict[str, Tensor] = {}
        for name, tensor in self.model.example("cpu").items():
            if tensor.is_floating_point():
                inputs[name] = torch.randn(batch, *tensor.shape[1:], generator=random)
                continue
            size = min(target if name.startswith("decoder") else length, tensor.shape[1])
            vocabulary = getattr(self.model.settings, "vocabulary", 1)
            inputs[name] = torch.randint(0, vocabulary, (batch, size), generator=random)
        if "attention_mask" in self.names:
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            inputs["attention_mask"][0, :1] = 0
        return tuple(inputs[name] for name in self.names)

    def dynamic(self) -> tuple[dict[int, Any], ...]:
        """Which dimensions are of any size: the batch, and of tokens the length."""
        pixels = [tensor.is_floating_point() for tensor in self.example(*TRIED_SIZES[0])]
        return tuple({0: Dim.DYNAMIC} if fixed else {0: Dim.DYNAMIC, 1: Dim.DYNAMIC} for fixed in pixels)


class FoldedRotation(nn.Module):
    """A random map whose U S V is multiplied out, one matrix for each time at which it acts."""

    def __init__(self, rotation: Rotation) -> None:
        super().__init__()
        self.times = list(rotation.folded)
        self.matrices = nn.ParameterList([matrix.detach() for _, matrix in rotation.folded.values()])
        self.bias = rotation.bias

    def forward(self, x: Tensor, t: float) -> Tensor:
        """x U(t) S V(t) + bias."""
        out = x @ self.matrices[self.times.index(t)]
        return out if self.bias is None else out + self.bias


def fold_rotations(model: OdeumModel) -> OdeumModel:
    """A copy in evaluation mode where random feed-forwards are plain ones; itself, if it has none."""
    if not any(isinstance(part, Rotation) for part in model.modules()):
        return model
    out = copy.deepcopy(model).eval()
    rotations = [part for part in out.modules() if isinstance(part, Rotation)]
    for part in rotations:
        part.fold()
    with torch.no_grad():  # so that each is evaluated at all of its times
        out(**out.example("cpu"))
    folded = {id(part): FoldedRotation(part) for part in rotations}
    for parent in list(out.modules()):
        for name, child in list(parent.named_children()):
            if id(child) in folded:
                setattr(parent, name, folded[id(child)])
    return out


def trace(model: OdeumModel) -> tuple[Graph, ExportedProgram]:
    """The graph of a model; one whose steps depend on numbers has none."""
    if any(isinstance(part, Adaptive) for part in model.modules()):
        raise OdeumError(
            "the steps of an adaptive solver depend on its input, so there is no fixed graph; export it "
            "with fixed steps, such as --solver rk4 --steps 4, and see by `odeum evaluate` what they cost"
        )
    with Evaluation(model), torch.no_grad(), _quiet():
        graph = Graph(fold_rotations(model)).eval()
        try:
            inputs, shapes = graph.example(*TRIED_SIZES[0]), (graph.dynamic(),)
            program = torch.export.export(graph, inputs, dynamic_shapes=shapes, strict=False)
        except RuntimeError as error:  # what torch has for branches that depend on numbers
            raise OdeumError(
                f"torch cannot trace this model as one graph: {str(error).strip().splitlines()[0]}"
            ) from None
    return graph, program


class Written(NamedTuple):
    """The files written, and the largest error against the model at sizes that were not traced."""

    path: Path
    inputs: dict[str, list[str | int]]
    difference: float


def write_graph(model: OdeumModel, directory: Path, to: str) -> Written:
    """`model.onnx` or `model.pt2` in a directory, run again and compared; one that is not near is not left there."""
    if to == "onnx" and (missing := [name for name in ONNX_NEEDS if importlib.util.find_spec(name) is None]):
        raise OdeumError(f"export to onnx needs {', '.join(missing)}; `pip install odeum[export]`")
    graph, program = trace(model)
    path = directory / ("model.onnx" if to == "onnx" else "model.pt2")
    with _quiet():
        if to == "onnx":
            torch.onnx.export(
                program, (), path, input_names=graph.names, output_names=["logits"], external_data=False, dynamo=True
            )
        else:
            packed = io.BytesIO()  # a full disk would end the process within torch's own writer
            torch.export.save(program, packed)
            write_bytes(path, packed.getvalue())
        run = _onnx_runner(path, graph.names) if to == "onnx" else torch.export.load(path).module()
    difference = compare_graph(Graph(model), run)
    if not difference <= NEAR_ENOUGH:
        path.unlink()
        raise OdeumError(f"the graph differs from the model by {difference:.1e} of its largest logit; it was not kept")
    return Written(path, _shapes(graph), difference)


def compare_graph(graph: Graph, run: Any) -> float:
    """The largest difference at all sizes, as a part of the largest logit."""
    worst = 0.0
    with Evaluation(graph), torch.no_grad():
        for sizes in TRIED_SIZES:
            inputs = graph.example(*sizes)
            expected = graph(*inputs)
            result = run(*inputs)
            worst = max(worst, float((result - expected).abs().max() / expected.abs().max().clamp(min=1e-6)))
    return worst


def _onnx_runner(path: Path, names: list[str]) -> Any:
    onnxruntime: Any = import_module("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(*inputs: Tensor) -> Tensor:
        fed = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run(None, fed)[0])

    return run


def _shapes(graph: Graph) -> dict[str, list[str | int]]:
    """A description of each input; dimensions of any size have names."""
    labels = ("batch", "length")
    return {
        name: [labels[i] if i in free else size for i, size in enumerate(tensor.shape)]
        for name, tensor, free in zip(graph.names, graph.example(*TRIED_SIZES[0]), graph.dynamic(), strict=True)
    }


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Tracers talk to their developers: on standard output and by warnings."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
