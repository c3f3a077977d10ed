"""Depth as time: measure what the tokens of a model do on their way through its layers.

`inspect(model, batch)` runs one forward pass and returns an `Inspection`: per layer how far the states move, where
they turn, how large and how alike they become; per sublayer how large its branch is beside the stream; and the answer
that the model would give if depth ended there (logit lens). `lyapunov` and `local_error` cost more and are functions
of their own. Nothing of the model is changed, and states are kept only for as many tokens as asked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect as signatures
import itertools
import math
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from odeum.errors import OdeumError
from odeum.fields.attention import CrossAttention, SelfAttention, merge_masks, split_heads
from odeum.fields.base import Context, Field
from odeum.flow import Flow, Stack, finished
from odeum.hooks import in_this_thread
from odeum.integrators.fixed import FixedSteps
from odeum.integrators.gradients import GradientSolver

MAX_TOKENS = 4096
"""tokens of which measures over pairs of tokens are taken"""
MAX_ENTROPY_WEIGHTS = 1 << 22
"""attention weights that are computed at once for an entropy"""
LENS_CHUNK = 1 << 22
"""logits that are computed at once for the lens"""
MOST_LENS = 1 << 26
"""logits that the lens may compute per layer: about 1,300 positions of GPT-2's vocabulary"""
MORE_TANGENTS, MOST_SWEEPS, SETTLED = 4, 20, 1e-3
"""of Lyapunov exponents: further tangent vectors, passes through the depth at most, and the change (per unit of time)
below which exponents have settled"""


@dataclass(frozen=True)
class LayerMeasures:
    """Measures of one layer, each a mean over the tokens that are not padding. x is the state before, x′ after it."""

    layer: int
    """index in the order of evaluation; a layer that acts again has several indices"""
    time: float
    """time at the start of the layer"""
    displacement: float
    """‖x′ − x‖ / ‖x‖"""
    cosine: float
    """cosine of the angle between x′ and x"""
    turn: float | None
    """angle in degrees between this displacement and the one before: 0 is a straight path (None: the first layer)"""
    norm: float
    """‖x′‖ / √width"""
    effective_rank: float
    """exp of the entropy of the squared singular values of the centred states, as shares: 1 to the number of tokens"""
    alikeness: float
    """mean cosine between the states of two tokens of one sequence: 1 where all tokens are one cluster"""
    agreement: float | None = None
    """share of positions where the logit lens after this layer gives the final answer (None: no lens)"""
    streams: tuple[float, ...] = ()
    """‖stream‖ / √width of each residual stream, if there are several"""
    curvature: float | None = None
    """turn in radians per relative length of path, mean of this and the previous displacement (None: first layer)"""
    stream_displacements: tuple[float, ...] = ()
    """‖x′ − x‖ / ‖x‖ of each residual stream, if there are several"""


@dataclass(frozen=True)
class BranchMeasures:
    """One evaluation of one term of a layer's field."""

    layer: int
    term: str
    """attention, cross, feedforward, …"""
    time: float
    ratio: float
    """‖branch‖ / ‖stream‖"""
    displacement: float | None
    """‖x′ − x‖ / ‖x‖ from the input of this term to that of the next (None: terms do not act one after the other)"""
    entropy: float | None = None
    """entropy of the attention weights in nats, mean over heads and queries (None: no softmax attention)"""
    cosine: float | None = None
    """cosine of the angle between x′ and x (None: as for displacement)"""

    @property
    def influence(self) -> float | None:
        """1 − cosine."""
        return None if self.cosine is None else 1 - self.cosine


@dataclass(frozen=True)
class Inspection:
    """The result of `inspect`."""

    layers: tuple[LayerMeasures, ...]
    branches: tuple[BranchMeasures, ...]
    lens: np.ndarray | None
    """most likely class or token after each layer: [layers + 1, rows, positions], or [layers + 1, rows]; the rows are
    the first sequences of the batch, as many as `MOST_LENS` allows"""
    answer: np.ndarray | None
    """most likely class or token of the whole model: `lens` without the first axis"""
    states: np.ndarray
    """states of the first sequences, [layers + 1, keep, positions, width], before the first layer and after each"""
    notes: tuple[str, ...] = field(default=())
    agreement_before: float | None = None
    """`agreement` of the states before the first layer"""

    def particles(self, sequence: int = 0) -> np.ndarray:
        """The tokens of one sequence in two dimensions, [layers + 1, positions, 2]: PCA, fixed over the whole path."""
        if not 0 <= sequence < self.states.shape[1]:
            raise OdeumError(f"there is no sequence {sequence}; the sequences are 0 to {self.states.shape[1] - 1}")
        return plane(self.states[:, sequence])[0]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {
            "layers": [
                vars(layer) | {"streams": list(layer.streams), "stream_displacements": list(layer.stream_displacements)}
                for layer in self.layers
            ],
            "branches": [vars(branch) for branch in self.branches],
            "lens": None if self.lens is None else self.lens.tolist(),
            "answer": None if self.answer is None else self.answer.tolist(),
            "agreement_before": self.agreement_before,
            "notes": list(self.notes),
        }


def plane(*paths: np.ndarray) -> list[np.ndarray]:
    """Paths [states, tokens, width] in the plane of the two main directions of all their points together."""
    points = [path.reshape(-1, path.shape[-1]).astype(np.float64) for path in paths]
    every = np.concatenate(points)
    centre = every.mean(0)
    if len(every) <= every.shape[1]:
        axes = np.linalg.svd(every - centre, full_matrices=False)[2][:2]
    else:
        axes = np.linalg.eigh((every - centre).T @ (every - centre))[1][:, ::-1][:, :2].T
    axes = axes * np.sign(axes.sum(1, keepdims=True) + 1e-12)  # the same picture on every machine
    flat = [(part - centre) @ axes.T for part in points]
    return [part.reshape(*path.shape[:2], -1) for part, path in zip(flat, paths, strict=True)]


def inspect(
    model: nn.Module, batch: Mapping[str, Any] | Tensor, *, keep: int = 1, seen: Tensor | None = None
) -> Inspection:
    """Measure one forward pass.

    Measures are taken while the pass runs, so that only a few states are in memory at a time.

    Arguments: a model of Odeum (or an `odeum.Encoder`); its inputs, as a mapping of arguments or one tensor; the
    number of sequences of which all states are kept; the positions to measure, [batch, length] (default: those that
    the attention mask does not hide). Of a translation model the decoder is inspected.
    """
    inputs = dict(batch) if isinstance(batch, Mapping) else {_first_argument(model): batch}
    stack = inspected_stack(model)
    if any(module.training for module in model.modules()):
        raise OdeumError("the model is in training mode, where dropout would be measured too; call model.eval() first")
    watch = _Watch(model, stack, keep, seen)
    with torch.no_grad(), _hooks(stack, watch):
        output = model(**inputs)
    if not watch.layers:
        raise OdeumError(f"{type(model).__name__} ran no layer of its stack; it cannot be inspected")
    return watch.result(output)


def inspected_stack(model: nn.Module) -> Stack:
    """The stack whose states are measured: the decoder of a translation model, else the model's own."""
    for name in ("decoder", "stack", "encoder"):
        if isinstance(stack := getattr(model, name, None), Stack):
            return stack
    for module in model.modules():
        if isinstance(module, Stack):
            return module
    raise OdeumError(f"{type(model).__name__} has no stack of layers to inspect")


def _first_argument(model: nn.Module) -> str:
    return next(iter(signatures.signature(model.forward).parameters))


class _Calls:
    """Receives what the hooks see; this one keeps each layer's input."""

    def __init__(self) -> None:
        self.calls: list[tuple[Flow, float, Tensor, Context]] = []
        self.joined = True
        """whether each layer reads the output of the one before"""
        self.last: Tensor | None = None

    def flow(self, flow: Flow, time: float, x: Tensor, out: Tensor, context: Context) -> None:
        """After a layer."""
        self.joined &= self.last is None or torch.equal(self.last, x)
        self.last = out
        self.calls.append((flow, time, x, context))


class _Watch:
    """Measures layers and terms as they run. Holds the last state, the last displacement and the last term's input."""

    def __init__(self, model: nn.Module, stack: Stack, keep: int, seen: Tensor | None) -> None:
        self.model, self.stack, self.keep, self.seen = model, stack, keep, seen
        self.layers: list[LayerMeasures] = []
        self.branches: list[BranchMeasures] = []
        self.states: list[Tensor] = []
        self.lens: list[Tensor] = []
        self.lens_rows: int | None = None
        self.lens_size = 1
        """logits of one sequence"""
        self.reader = _reader(model)
        self.state: Tensor | None = None
        self.step: Tensor | None = None
        self.length: Tensor | None = None
        """‖x′ − x‖ / ‖x‖ of each token in the layer before"""
        self.entropy: float | None = None
        self.measured = torch.ones(0)
        """positions that the last layer was measured at"""
        self.waiting: Tensor | None = None
        """input of the last term, whose displacement is not known yet"""
        self.joined = True
        """whether each layer reads the output of the one before"""
        self.last: Tensor | None = None
        """that output"""
        self.streams: Tensor | None = None
        """residual streams that the last layer joined"""

    def attention(self, module: SelfAttention | CrossAttention, x: Tensor, context: Context) -> None:
        """After an attention, before its term ends."""
        self.entropy = attention_entropy(module, x, context, self._seen(x, context))

    def term(self, name: str, time: float, x: Tensor, out: Tensor, context: Context) -> None:
        """After one evaluation of a term."""
        seen = self._seen(x, context)
        stream, branch = (part.mean(-2) if part.dim() == 4 else part for part in (x, out))
        self._moved_to(stream, seen)
        ratio = float((_norm(branch[seen]) / _norm(stream[seen])).mean())
        self.branches.append(BranchMeasures(len(self.layers), name, time, ratio, None, self.entropy))
        self.waiting, self.entropy = stream, None

    def _moved_to(self, x: Tensor, seen: Tensor) -> None:
        """Complete the measures of the last term of this layer: the state has become x."""
        if self.waiting is None or self.waiting.shape != x.shape or torch.equal(self.waiting, x):
            return
        before, after = self.waiting[seen].float(), x[seen].float()
        moved = float((_norm(after - before) / _norm(before)).mean())
        cosine = float(nn.functional.cosine_similarity(before, after, dim=-1).mean())
        self.branches[-1] = dataclasses.replace(self.branches[-1], displacement=moved, cosine=cosine)

    def flow(self, flow: Flow, time: float, x: Tensor, out: Tensor, context: Context) -> None:
        """After a layer."""
        seen = self.measured = self._seen(x, context)
        self.joined &= self.last is None or torch.equal(self.last, x)
        self.last = out
        if self.state is None:
            self._keep(x if x.dim() < 4 else x.mean(-2), flow, context)
        assert self.state is not None
        after = finished(out, flow, context)
        self._moved_to(after, seen)
        self.waiting = None
        if not _splits(flow):  # the terms of this layer were evaluated beside each other, or in stages
            here = len(self.layers)
            self.branches = [
                dataclasses.replace(b, displacement=None, cosine=None) if b.layer == here else b for b in self.branches
            ]
        ends = out if out.dim() == 4 else self.streams
        self.layers.append(self._measured(self.state[seen].float(), after[seen].float(), time, x, ends, after, seen))
        self.streams = None
        self._keep(after, flow, context)

    def _measured(
        self, x: Tensor, y: Tensor, time: float, starts: Tensor, ends: Tensor | None, after: Tensor, seen: Tensor
    ) -> LayerMeasures:
        step, width = y - x, math.sqrt(x.shape[-1])
        length = _norm(step) / _norm(x)
        turn = curvature = None
        if self.step is not None and self.length is not None and self.step.shape == step.shape:
            angle = nn.functional.cosine_similarity(step, self.step, dim=-1).clamp(-1, 1).acos()
            turn = float(angle.rad2deg().mean())
            curvature = float((angle / ((length + self.length) / 2).clamp_min(1e-12)).mean())
        self.step, self.length = step, length
        streams: tuple[float, ...] = ()
        stream_displacements: tuple[float, ...] = ()
        if ends is not None:
            starts = starts if starts.dim() == 4 else starts.unsqueeze(-2)  # streams begin as the state
            starts, ends = starts[seen].float(), ends[seen].float()
            streams = tuple((_norm(ends).mean(0) / width).tolist())
            stream_displacements = tuple((_norm(ends - starts) / _norm(starts)).mean(0).tolist())
        return LayerMeasures(
            layer=len(self.layers),
            time=float(time),
            displacement=float(length.mean()),
            cosine=float(nn.functional.cosine_similarity(x, y, dim=-1).mean()),
            turn=turn,
            norm=float(_norm(y).mean()) / width,
            effective_rank=effective_rank(y[:MAX_TOKENS]),
            alikeness=_alikeness(after, seen),
            streams=streams,
            curvature=curvature,
            stream_displacements=stream_displacements,
        )

    def _keep(self, state: Tensor, flow: Flow, context: Context) -> None:
        """The state for the next layer; of some sequences also its copy and its lens."""
        self.state = state
        self.states.append(state[: self.keep].float().cpu())
        if self.reader is None:
            return
        normed = _last_norm(self.stack, flow)
        if self.lens_rows is None:
            first = self.reader(normed(state[:1]), _rows(context, slice(0, 1), state.shape[0]))
            self.lens_size = first.numel()
            most = 0 if first.shape[-1] == 1 else max(1, MOST_LENS // self.lens_size)
            self.lens_rows = min(state.shape[0], most)
        answers = []
        chunk = max(1, LENS_CHUNK // self.lens_size)
        for begin in range(0, self.lens_rows, chunk):
            rows = slice(begin, min(begin + chunk, self.lens_rows))
            answers.append(self.reader(normed(state[rows]), _rows(context, rows, state.shape[0])).argmax(-1))
        if answers:
            self.lens.append(torch.cat(answers))

    def _seen(self, x: Tensor, context: Context) -> Tensor:
        """[batch, length]: positions that are measured."""
        return seen_positions(x, context) if self.seen is None else self.seen.to(x.device)

    def result(self, output: Any) -> Inspection:
        """After the pass; `output` is what the model returned."""
        logits, notes = getattr(output, "logits", None), []
        lens = answer = agreement_before = None
        layers = self.layers
        if not self.joined:
            notes.append(
                "states also change between layers, as by the injection of a loop; how far a layer moves them includes "
                "that change"
            )
        if logits is None or self.reader is None or logits.dim() < 2:
            notes.append("the model has no logits, so there is no logit lens")
        elif logits.shape[-1] == 1:
            notes.append("the model predicts a number, so there is no logit lens")
        else:
            rows = self.lens[0].shape[0]
            lens, answer = torch.stack(self.lens), logits[:rows].argmax(-1)
            if rows < logits.shape[0]:
                notes.append(f"the logit lens reads {rows} of the {logits.shape[0]} sequences")
            seen = self.measured[:rows] if lens.dim() == 3 else torch.ones_like(answer, dtype=torch.bool)
            agreement_before, *shares = (float((here == answer)[seen].float().mean()) for here in lens)
            layers = [dataclasses.replace(layer, agreement=share) for layer, share in zip(layers, shares, strict=True)]
        return Inspection(
            tuple(layers),
            tuple(self.branches),
            None if lens is None else lens.cpu().numpy(),
            None if answer is None else answer.cpu().numpy(),
            torch.stack(self.states).numpy(),
            tuple(notes),
            agreement_before,
        )


def _norm(x: Tensor) -> Tensor:
    """Length of each vector, at least a number that can be divided by."""
    return x.float().norm(dim=-1).clamp_min(1e-12)


def _splits(flow: Flow) -> bool:
    """Whether the terms of a layer act one after the other."""
    solver: Any = flow.solver
    while isinstance(solver, GradientSolver):
        solver = solver.solver
    return bool(getattr(getattr(solver, "method", None), "splitting", False))


_ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def _hooks(stack: Stack, watch: _Watch | _Calls) -> Generator[None]:
    """Forward hooks on the layers of a stack, their terms and their attentions, for as long as the block lasts.

    They act in this thread alone, so that the model can be used in others meanwhile; one inspection runs at a time.
    """
    handles = []

    def after_flow(flow: Any, arguments: tuple[Any, ...], out: Tensor) -> None:
        context: Context = arguments[1] if len(arguments) > 1 and arguments[1] is not None else Context()
        time = arguments[2] if len(arguments) > 2 else None
        watch.flow(flow, flow.t0 if time is None else time, arguments[0], out, context)

    def register(module: nn.Module, hook: Callable[..., None]) -> None:
        handles.append(module.register_forward_hook(in_this_thread(hook)))

    flows = [module for module in stack.modules() if isinstance(module, Flow)]
    divided = {flow: parts for flow in flows if len(parts := _in_layers(flow)) > 1}
    joining = {method for flow in flows if isinstance(watch, _Watch) and (method := flow.stateful_method) is not None}
    replaced: list[tuple[nn.Module, str, Any]] = []

    def replace(module: nn.Module, name: str, function: Callable[..., Any]) -> None:
        replaced.append((module, name, vars(module).get(name)))
        setattr(module, name, in_this_thread(function, getattr(module, name)))

    _ONE_AT_A_TIME.acquire()
    try:
        for method in joining:
            replace(method, "finish", partial(_finish, watch, method.finish))
        for flow in flows:
            if flow in divided:
                replace(flow, "forward", partial(_through, divided[flow], after_flow))
            else:
                register(flow, after_flow)
            if isinstance(watch, _Calls):
                continue
            for name, term in named_terms(flow.field):
                register(term, _after_term(watch, name))
            for module in flow.field.modules():
                if isinstance(module, SelfAttention | CrossAttention):
                    register(module, _after_attention(watch))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module, name, before in replaced:
            if before is None:
                delattr(module, name)
            else:
                setattr(module, name, before)
        _ONE_AT_A_TIME.release()


def _finish(watch: Any, finish: Callable[[Tensor, Context], Tensor], x: Tensor, context: Context) -> Tensor:
    """`Method.finish`; keeps streams, which the output of the last layer no longer shows."""
    if x.dim() == 4:
        watch.streams = x
    return finish(x, context)


def _in_layers(flow: Flow) -> list[Flow]:
    """A flow over the time of several layers as one flow per layer, or per step where steps are longer."""
    count = round(flow.duration / flow.layer)
    solver: Any = flow.solver
    while isinstance(solver, GradientSolver):
        solver = solver.solver
    if isinstance(solver, FixedSteps):
        steps = max(1, round(flow.duration * solver.steps))
        count = count if steps % max(1, count) == 0 else steps
    if count <= 1 or flow.stateful_method is not None:
        return [flow]
    ends = [flow.t0 + flow.duration * i / count for i in range(count + 1)]
    return [Flow(flow.field, solver, a, b, layer=flow.layer) for a, b in itertools.pairwise(ends)]


def _through(
    parts: Sequence[Flow],
    after: Callable[..., None],
    x: Tensor,
    context: Context | None = None,
    t0: float | None = None,
) -> Tensor:
    """The forward pass of a flow through its parts."""
    start = parts[0].t0 if t0 is None else t0
    for part in parts:
        arguments = (x, context, start + part.t0 - parts[0].t0)
        x = part(*arguments)
        after(part, arguments, x)
    return x


def _after_term(watch: _Watch, name: str) -> Callable[..., None]:
    def hook(term: Any, arguments: tuple[Any, ...], out: Tensor) -> None:
        time, x, context = arguments
        watch.term(name, float(time), x, out, context)

    return hook


def _after_attention(watch: _Watch) -> Callable[..., None]:
    def hook(module: Any, arguments: tuple[Any, ...], out: Tensor) -> None:
        watch.attention(module, arguments[1], arguments[2])

    return hook


def named_terms(field: Field) -> list[tuple[str, Field]]:
    """The terms of a field by name; a field that hides its terms (one norm for all) is one term."""
    terms = field.terms
    names = {id(term): name for name, term in getattr(field, "fields", {}).items()}
    if len(terms) == 1:
        return [(terms[0].role or "field", terms[0])]
    return [(names.get(id(term), term.role or f"term {place}"), term) for place, term in enumerate(terms)]


def _scores(
    module: SelfAttention | CrossAttention, x: Tensor, context: Context
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Masked scores [batch, heads, queries, keys] before the softmax, some sequences or some queries at a time.

    Keys of earlier layers, which a query sees at its own position alone, follow those of the positions.
    """
    earlier: Tensor | None = None
    if isinstance(module, CrossAttention):
        source = context.other
        assert source.memory is not None
        q, (k, _) = split_heads(module.q(x), module.heads), module.keys_values(source.memory)
    else:
        source = context.own
        q, k, _ = module.queries_keys_values(x, source.rotary)
        if source.past is not None and source.past.keys:
            earlier = torch.stack(source.past.keys, -2)  # [batch, heads, length, layers, head width]
        if module.shared > 1:
            k = k.repeat_interleave(module.shared, dim=1)
            earlier = None if earlier is None else earlier.repeat_interleave(module.shared, dim=1)
    q = q / math.sqrt(q.shape[-1])
    length, keys = q.shape[-2], k.shape[-2]
    mask = source.mask
    if source.causal:
        order = torch.ones(length, keys, dtype=torch.bool, device=x.device).tril(keys - length)
        mask = merge_masks(order, mask)
    per_query = max(1, q.shape[1] * keys)
    step = max(1, MAX_ENTROPY_WEIGHTS // (per_query * length))
    some = max(1, min(length, MAX_ENTROPY_WEIGHTS // per_query))
    for begin, first in itertools.product(range(0, q.shape[0], step), range(0, length, some)):
        rows, queries = slice(begin, begin + step), slice(first, first + some)
        asked = q[rows, :, queries]
        scores = asked @ k[rows].transpose(-1, -2)
        if mask is not None:
            part = mask if mask.dim() < 4 or mask.shape[0] == 1 else mask[rows]
            part = part if part.shape[-2] == 1 else part[..., queries, :]
            scores = scores.masked_fill(~part, -torch.inf) if part.dtype == torch.bool else scores + part
        if earlier is not None:
            scores = torch.cat((scores, (earlier[rows, :, queries] @ asked.unsqueeze(-1)).squeeze(-1)), -1)
        yield rows, queries, scores


def attention_weights(module: SelfAttention | CrossAttention, x: Tensor, context: Context) -> Tensor:
    """softmax(q kᵀ / √d), [batch, heads, queries, keys]; zeros for a query that may attend to nothing."""
    parts: dict[int, list[Tensor]] = {}
    for rows, _, scores in _scores(module, x, context):
        weights = scores.softmax(-1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0.0)
        parts.setdefault(rows.start, []).append(weights)
    return torch.cat([torch.cat(each, dim=-2) for each in parts.values()])


def attention_entropy(
    module: SelfAttention | CrossAttention, x: Tensor, context: Context, queries: Tensor | None = None
) -> float:
    """Mean entropy of softmax(q k) over heads and queries, some of them at a time.

    `queries`, [batch, length], are the positions to average over (default: all).
    """
    total, count = 0.0, 0
    for rows, places, scores in _scores(module, x, context):
        logs = scores.log_softmax(-1)
        entropy = -(logs.exp() * logs.masked_fill(logs == -torch.inf, 0.0)).sum(-1)
        seen = entropy.isfinite()  # a query that sees nothing has no entropy
        if queries is not None:
            seen &= queries[rows, None, places]
        total, count = total + float(entropy[seen].sum()), count + int(seen.sum())
    return total / max(count, 1)


def seen_positions(x: Tensor, context: Context) -> Tensor:
    """[batch, length]: positions that are not padding."""
    mask = context.own.mask
    if mask is not None and mask.dim() == 4 and mask.shape[1:3] == (1, 1) and mask.dtype == torch.bool:
        return mask[:, 0, 0].expand(x.shape[:2])
    return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)


def effective_rank(states: Tensor) -> float:
    """exp(−Σ p log p) of p = σ² / Σ σ², the singular values of the centred states: shares of variance.

    Roy and Vetterli (2007), who name it, take p = σ / Σ σ, which is larger.
    """
    centred = states - states.mean(0)
    square = centred.T @ centred if centred.shape[0] > centred.shape[1] else centred @ centred.T
    values = torch.linalg.eigvalsh(square.double()).clamp_min(0)
    share = values / values.sum().clamp_min(1e-300)
    share = share[share > 0]
    return float(torch.exp(-(share * share.log()).sum()))


def _alikeness(states: Tensor, seen: Tensor) -> float:
    """Mean cosine over all pairs of different tokens of each sequence; one sum instead of all pairs."""
    unit = nn.functional.normalize(states.float(), dim=-1) * seen.unsqueeze(-1)
    count = seen.sum(1).float()
    pairs = unit.sum(1).pow(2).sum(-1) - count
    several = count > 1
    if not bool(several.any()):
        return 1.0
    return float((pairs / (count * (count - 1)).clamp_min(1))[several].mean())


def _last_norm(stack: Stack, flow: Flow) -> nn.Module:
    """The norm that a state after this layer would pass if depth ended there: its block's, or the stack's."""
    for block in stack.flows:
        if isinstance(body := getattr(block, "body", None), nn.Module) and flow in list(body.modules()):
            norm = getattr(block, "norm", None)
            return norm if norm is not None else nn.Identity()
    return stack.norm if stack.norm is not None else nn.Identity()


def _reader(model: nn.Module) -> Callable[[Tensor, Context], Tensor] | None:
    """A function from normed states to logits."""
    if callable(logits := getattr(model, "logits", None)):
        return lambda x, _: logits(x)
    if callable(read := getattr(model, "apply_head", None)):
        takes_context = len(signatures.signature(read).parameters) > 1
        return (lambda x, context: read(x, context)) if takes_context else (lambda x, _: read(x))
    of_embedding = getattr(getattr(model, "embedding", None), "logits", None)
    return (lambda x, _: of_embedding(x)) if callable(of_embedding) else None


def _rows(context: Context, rows: slice, batch: int) -> Context:
    """The context of some sequences of a batch, as far as a head reads it: its mask."""
    mask = context.own.mask
    if mask is None or mask.shape[0] != batch:
        return context
    return context._replace(own=context.own._replace(mask=mask[rows]))


def _layer_calls(model: nn.Module, batch: Mapping[str, Any] | Tensor) -> _Calls:
    """Every layer as it acts on this input: flow, time, state before it, context; methods with memory are refused."""
    inputs = dict(batch) if isinstance(batch, Mapping) else {_first_argument(model): batch}
    watch = _Calls()
    with torch.no_grad(), _hooks(inspected_stack(model), watch):
        model(**inputs)
    for flow, *_ in watch.calls:
        if flow.stateful_method is not None:
            raise OdeumError(
                f"{flow.stateful_method.history} passes a state from layer to layer, so a layer is not a function of x "
                "alone; use a method without history"
            )
    return watch


def lyapunov(
    model: nn.Module,
    batch: Mapping[str, Any] | Tensor,
    count: int = 4,
    *,
    seed: int = 0,
    seen: Tensor | None = None,
) -> np.ndarray:
    """The leading Lyapunov exponents of the path of the first sequence, per unit of time, largest first.

    Over a finite depth these are log σ / time, σ the largest singular values of the derivative of the last state with
    respect to the first. Tangent vectors pass through each layer by Jacobian–vector products and are made orthonormal
    again (QR) after each layer; the logarithms of their growth are summed. A few layers do not turn random vectors into
    the directions that grow most, so the vectors go back through the transposed Jacobians and forward again until the
    exponents settle. A positive exponent means that small differences can grow. Positions of padding, or that are False
    in `seen` [batch, length], stay as they are.
    """
    watch = _layer_calls(model, batch)
    if not watch.joined:
        raise OdeumError(
            "Lyapunov exponents follow one state from layer to layer, and this model changes it between layers, as a "
            "loop with an injection does; use inject=none or another architecture"
        )
    calls = watch.calls
    _, _, x, context = calls[0]
    free = (seen_positions(x, context) if seen is None else seen.to(x.device))[:1]
    free = free.view(1, -1, *[1] * (x.dim() - 2)).expand_as(x[:1]).reshape(-1, 1)
    size = int(free.sum())
    if not 1 <= count <= size:
        raise OdeumError(f"--lyapunov {count} must be from 1 to the {size} numbers of one sequence's state")
    vectors = min(size, count + MORE_TANGENTS)
    layers = [
        (partial(_one_layer, flow, _first_row(context, before.shape[0], vectors), start), _copies(before, vectors))
        for flow, start, before, context in calls
    ]
    time = sum(abs(flow.duration) for flow, *_ in calls)
    random = torch.Generator().manual_seed(seed)
    start = torch.randn(len(free), vectors, generator=random, dtype=torch.float64)
    basis, growth = torch.linalg.qr(start.to(x.device) * free)[0], None
    with sdpa_kernel(SDPBackend.MATH):  # the fused attention of CPUs has no forward derivative
        for _ in range(MOST_SWEEPS):
            before, (basis, growth) = growth, _carried(_pushed, layers, basis, free)
            if before is not None and float((growth - before)[:count].abs().max()) < SETTLED * time:
                break
            basis, _ = _carried(_pulled, layers[::-1], basis, free)
    assert growth is not None
    return np.sort((growth[:count] / time).numpy())[::-1].copy()


Tangents = Callable[[Callable[[Tensor], Tensor], Tensor, Tensor], Tensor]


def _one_layer(flow: Flow, context: Context, start: float, x: Tensor) -> Tensor:
    """A layer as a function of its state; a solver that wraps another to change its gradient is left out."""
    solver: Any = flow.solver
    while isinstance(solver, GradientSolver):
        solver = solver.solver
    return solver(flow.field, start, start + flow.duration, x, context)


def _pushed(layer: Callable[[Tensor], Tensor], x: Tensor, rows: Tensor) -> Tensor:
    """J v of each row v, J the derivative of a layer at each row of x."""
    return torch.func.jvp(layer, (x,), (rows,))[1].detach()


def _pulled(layer: Callable[[Tensor], Tensor], x: Tensor, rows: Tensor) -> Tensor:
    """Jᵀ v of each row v."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(layer(x), x, rows)[0]


def _carried(
    act: Tangents, layers: Sequence[tuple[Callable[[Tensor], Tensor], Tensor]], basis: Tensor, free: Tensor
) -> tuple[Tensor, Tensor]:
    """Orthonormal vectors behind all layers, and the logarithm of the growth of each."""
    growth = torch.zeros(basis.shape[1], dtype=torch.float64)
    for layer, x in layers:
        rows = act(layer, x, basis.T.to(x.dtype).reshape(x.shape))
        basis, r = torch.linalg.qr(rows.flatten(1).T.double() * free)
        growth += r.diagonal().abs().clamp_min(1e-300).log().cpu()
    return basis, growth


def _copies(x: Tensor, count: int) -> Tensor:
    """The first sequence, several times."""
    return x[:1].repeat(count, *[1] * (x.dim() - 1))


def _first_row(context: Context, batch: int, copies: int) -> Context:
    """The context of the first sequence, for several copies of it."""

    def first(source: Any) -> Any:
        mask, memory, rotary = source.mask, source.memory, source.rotary
        if mask is not None and mask.dim() == 4 and mask.shape[0] == batch:
            mask = mask[:1]
        if rotary is not None and rotary.positions.shape[0] == batch:
            rotary = rotary._replace(positions=rotary.positions[:1], tables=None)
        elif rotary is not None:
            rotary = rotary._replace(tables=None)
        return source._replace(mask=mask, memory=None if memory is None else _copies(memory, copies), rotary=rotary)

    if context.own.anchor is not None:
        raise OdeumError("this measure is not available for TransEvolve; use another architecture")
    return context._replace(own=first(context.own), other=first(context.other))


def local_error(model: nn.Module, batch: Mapping[str, Any] | Tensor, *, seen: Tensor | None = None) -> np.ndarray:
    """Error of each layer against two steps of half the length, ‖x₁ − x₂‖ / ‖x₁‖ · 2^p / (2^p − 1), mean over tokens.

    The tokens are those that are not padding, or those that are True in `seen` [batch, length].

    p is the order of the layer's method; a method without an order, or an adaptive solver, raises `OdeumError`.
    """
    out = []
    with torch.no_grad():
        for flow, start, before, context in _layer_calls(model, batch).calls:
            solver: Any = flow.solver
            while isinstance(solver, GradientSolver):
                solver = solver.solver
            if not isinstance(solver, FixedSteps) or solver.method.order is None:
                raise OdeumError("local errors need a fixed-step method with a known order; this model has none")
            order = solver.method.order
            fine = FixedSteps(solver.method, 2 * solver.steps)
            end = start + flow.duration
            once = solver(flow.field, start, end, before, context)
            twice = fine(flow.field, start, end, before, context)
            here = seen_positions(before, context) if seen is None else seen.to(before.device)
            error = (once - twice)[here].norm(dim=-1) / once[here].norm(dim=-1).clamp_min(1e-12)
            out.append(float(error.mean()) * 2**order / (2**order - 1))
    return np.array(out)
