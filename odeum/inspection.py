"""Depth as time: measure what the tokens of a model do on their way through its layers.

`inspect(model, batch)` runs one forward pass and returns an `Inspection`: per layer how far the states move, where
they turn, how large and how alike they become; per sublayer how large its branch is beside the stream; and the answer
that the model would give if depth ended there (logit lens). `lyapunov` and `local_error` cost more and are functions
of their own. Nothing of the model is changed, and states are kept only for as many tokens as asked.
"""

from __future__ import annotations

import contextlib
import inspect as signatures
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.fields.attention import SelfAttention, merge_masks, rotate, split_heads
from odeum.fields.base import Context, Field
from odeum.flow import Flow, Stack, finished
from odeum.integrators.fixed import FixedSteps
from odeum.integrators.gradients import GradientSolver

MOST_TOKENS = 4096
"""tokens of which measures over pairs of tokens are taken"""
MOST_ENTROPY = 1 << 22
"""attention weights that are computed at once for an entropy"""
LENS_CHUNK = 1 << 22
"""logits that are computed at once for the lens"""


@dataclass(frozen=True)
class LayerMeasures:
    """What one layer did; means over the tokens that are not padding."""

    layer: int
    """in the order in which layers act; a layer that acts again is there again"""
    time: float
    """at which it begins"""
    displacement: float
    """‖x′ − x‖ / ‖x‖"""
    cosine: float
    """of the angle between x′ and x"""
    turn: float | None
    """angle in degrees between this displacement and the one before: 0 is a straight path (None: the first layer)"""
    norm: float
    """‖x′‖ / √width"""
    effective_rank: float
    """exp of the entropy of the squared singular values of the centred states, as shares: 1 to the number of tokens"""
    alikeness: float
    """mean cosine between the states of two tokens of one sequence: 1 where all tokens are one cluster"""
    agreement: float | None = None
    """share of the positions where the lens after this layer gives the final answer (None: the model has no lens)"""
    streams: tuple[float, ...] = ()
    """‖stream‖ / √width of each residual stream, where there are several"""


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
    """‖x′ − x‖ / ‖x‖ from the input of this term to that of the next, where terms act one after the other"""
    entropy: float | None = None
    """of the attention weights in nats, mean over heads and queries (None: no softmax attention)"""


@dataclass(frozen=True)
class Inspection:
    """What `inspect` measured."""

    layers: tuple[LayerMeasures, ...]
    branches: tuple[BranchMeasures, ...]
    lens: np.ndarray | None
    """most likely class or token after each layer: [layers + 1, batch, positions], or [layers + 1, batch]"""
    answer: np.ndarray | None
    """the same of the whole model"""
    states: np.ndarray
    """[layers + 1, batch, positions, width] of the first sequences, before the first layer and after each"""
    notes: tuple[str, ...] = field(default=())

    def particles(self, sequence: int = 0) -> np.ndarray:
        """The tokens of one sequence in two dimensions, [layers + 1, positions, 2]: PCA, fixed over the whole path."""
        if not 0 <= sequence < self.states.shape[1]:
            raise OdeumError(f"sequence {sequence} was not kept; there are 0 to {self.states.shape[1] - 1}")
        path = self.states[:, sequence].astype(np.float64)
        flat = path.reshape(-1, path.shape[-1])
        centre = flat.mean(0)
        _, _, axes = np.linalg.svd(flat - centre, full_matrices=False)
        axes = axes[:2] * np.sign(axes[:2].sum(1, keepdims=True) + 1e-12)  # the same picture on every machine
        return (path - centre) @ axes.T

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {
            "layers": [vars(layer) | {"streams": list(layer.streams)} for layer in self.layers],
            "branches": [vars(branch) for branch in self.branches],
            "lens": None if self.lens is None else self.lens.tolist(),
            "answer": None if self.answer is None else self.answer.tolist(),
            "notes": list(self.notes),
        }


@dataclass
class _Record:
    """What the hooks saw, in the order in which it happened."""

    flows: list[tuple[Flow, float, Tensor, Tensor, Tensor, Context]] = field(default_factory=list)
    """flow, time, state before, after, after as streams, context"""
    terms: list[tuple[int, str, float, Tensor, Tensor]] = field(default_factory=list)
    """number of the layer, name, time, input, branch"""
    entropies: dict[int, float] = field(default_factory=dict)
    """by the number of the term"""


def inspect(model: nn.Module, batch: Mapping[str, Any] | Tensor, *, keep: int = 1) -> Inspection:
    """Measure one forward pass.

    Arguments: a model of Odeum (or an `odeum.Encoder`); its inputs, as a mapping of arguments or one tensor; the
    number of sequences of which all states are kept. Of a translation model the decoder is inspected.
    """
    inputs = dict(batch) if isinstance(batch, Mapping) else {_first_argument(model): batch}
    stack = inspected_stack(model)
    if any(module.training for module in model.modules()):
        raise OdeumError("the model is in training mode, where dropout would be measured too; call model.eval() first")
    with torch.no_grad(), _watched(stack) as record:
        output = model(**inputs)
    if not record.flows:
        raise OdeumError(f"{type(model).__name__} ran no layer of its stack; it cannot be inspected")
    return _measured(model, stack, record, output, keep)


def inspected_stack(model: nn.Module) -> Stack:
    """The stack whose states are looked at: the decoder of a translation model, else the model's own."""
    for name in ("decoder", "stack", "encoder"):
        if isinstance(found := getattr(model, name, None), Stack):
            return found
    found = next((module for module in model.modules() if isinstance(module, Stack)), None)
    if found is None:
        raise OdeumError(f"{type(model).__name__} has no stack of layers to inspect")
    return found


def _first_argument(model: nn.Module) -> str:
    return next(iter(signatures.signature(model.forward).parameters))


@contextlib.contextmanager
def _watched(stack: Stack) -> Generator[_Record]:
    """Forward hooks on the layers of a stack, their terms and their attentions, for as long as the block lasts."""
    record, handles = _Record(), []

    def after_flow(flow: Any, arguments: tuple[Any, ...], out: Tensor) -> None:
        x: Tensor = arguments[0]
        context: Context = arguments[1] if len(arguments) > 1 and arguments[1] is not None else Context()
        time = arguments[2] if len(arguments) > 2 else None
        before = x if x.dim() < 4 else x.mean(-2)
        record.flows.append(
            (flow, flow.t0 if time is None else time, before, finished(out, flow, context), out, context)
        )

    def term_hook(name: str) -> Callable[..., None]:
        def after_term(term: Any, arguments: tuple[Any, ...], out: Tensor) -> None:
            t, x, _ = arguments
            record.terms.append((len(record.flows), name, float(t), x, out))

        return after_term

    def after_attention(module: SelfAttention, arguments: tuple[Any, ...], out: Tensor) -> None:
        _, x, context = arguments
        record.entropies[len(record.terms)] = attention_entropy(module, x, context)

    try:
        for flow in stack.modules():
            if not isinstance(flow, Flow):
                continue
            handles.append(flow.register_forward_hook(after_flow))
            for name, term in named_terms(flow.field):
                handles.append(term.register_forward_hook(term_hook(name)))
            for module in flow.field.modules():
                if isinstance(module, SelfAttention):
                    handles.append(module.register_forward_hook(after_attention))
        yield record
    finally:
        for handle in handles:
            handle.remove()


def named_terms(whole: Field) -> list[tuple[str, Field]]:
    """The terms of a field by name; a field that hides its terms (one norm for all) is one term."""
    terms = whole.terms
    names = {id(term): name for name, term in getattr(whole, "fields", {}).items()}
    if len(terms) == 1:
        return [(terms[0].role or "field", terms[0])]
    return [(names.get(id(term), term.role or f"term {place}"), term) for place, term in enumerate(terms)]


def attention_entropy(module: SelfAttention, x: Tensor, context: Context) -> float:
    """Mean entropy of softmax(q k) over heads and queries, some heads at a time."""
    source = context.own
    q, k, _ = (
        split_heads(part, count)
        for part, count in zip(module.qkv(x).split(module.sizes, dim=-1), module.counts, strict=True)
    )
    if module.q_norm is not None and module.k_norm is not None:
        q, k = module.q_norm(q), module.k_norm(k)
    q, k = rotate(q, source.rotary), rotate(k, source.rotary)
    if module.shared > 1:
        k = k.repeat_interleave(module.shared, dim=1)
    length = q.shape[-2]
    mask = source.mask
    if source.causal:
        order = torch.ones(length, k.shape[-2], dtype=torch.bool, device=x.device).tril(k.shape[-2] - length)
        mask = merge_masks(order, mask)
    total, count = 0.0, 0
    rows = max(1, MOST_ENTROPY // max(q.shape[1] * length * k.shape[-2], 1))
    for begin in range(0, q.shape[0], rows):
        scores = q[begin : begin + rows] @ k[begin : begin + rows].transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None:
            part = mask if mask.dim() < 4 or mask.shape[0] == 1 else mask[begin : begin + rows]
            scores = scores.masked_fill(~part, -torch.inf) if part.dtype == torch.bool else scores + part
        logs = scores.log_softmax(-1)
        entropy = -(logs.exp() * logs.masked_fill(logs == -torch.inf, 0.0)).sum(-1)
        seen = entropy.isfinite()  # a query that sees nothing has no entropy
        total, count = total + float(entropy[seen].sum()), count + int(seen.sum())
    return total / max(count, 1)


def _measured(model: nn.Module, stack: Stack, record: _Record, output: Any, keep: int) -> Inspection:
    flows = record.flows
    context = flows[0][5]
    states = [flows[0][2], *(after for _, _, _, after, _, _ in flows)]
    seen = _seen(states[0], context)
    answer, lens, notes = _lenses(model, stack, [flow for flow, *_ in flows], states, output, context)
    layers: list[LayerMeasures] = []
    before_step: Tensor | None = None
    for place, (_, time, _, _, streams, _) in enumerate(flows):
        x, y = states[place][seen].float(), states[place + 1][seen].float()
        step = y - x
        turn = None
        if before_step is not None:
            cosine = nn.functional.cosine_similarity(step, before_step, dim=-1).clamp(-1, 1)
            turn = float(cosine.acos().rad2deg().mean())
        before_step = step
        width = math.sqrt(x.shape[-1])
        several = streams.dim() == 4
        layers.append(
            LayerMeasures(
                layer=place,
                time=float(time),
                displacement=float((step.norm(dim=-1) / x.norm(dim=-1).clamp_min(1e-12)).mean()),
                cosine=float(nn.functional.cosine_similarity(x, y, dim=-1).mean()),
                turn=turn,
                norm=float(y.norm(dim=-1).mean()) / width,
                effective_rank=effective_rank(y[:MOST_TOKENS]),
                alikeness=_alikeness(states[place + 1], seen),
                agreement=None
                if lens is None or answer is None
                else float((lens[place + 1] == answer)[..., :].float().mean()),
                streams=tuple((streams.float().norm(dim=-1).mean((0, 1)) / width).tolist()) if several else (),
            )
        )
    branches = _branches(record, states, seen)
    kept = torch.stack([state[:keep].float() for state in states]).cpu().numpy()
    shown = None if lens is None else torch.stack(lens).cpu().numpy()
    return Inspection(
        tuple(layers), branches, shown, None if answer is None else answer.cpu().numpy(), kept, tuple(notes)
    )


def _seen(x: Tensor, context: Context) -> Tensor:
    """[batch, length]: positions that are not padding."""
    mask = context.own.mask
    if mask is not None and mask.dim() == 4 and mask.shape[1:3] == (1, 1) and mask.dtype == torch.bool:
        return mask[:, 0, 0].expand(x.shape[:2])
    return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)


def effective_rank(states: Tensor) -> float:
    """exp(−Σ p log p) of p = σ² / Σ σ², the singular values of the centred states (Roy and Vetterli 2007)."""
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


def _branches(record: _Record, states: list[Tensor], seen: Tensor) -> tuple[BranchMeasures, ...]:
    out = []
    terms = record.terms
    for number, (layer, name, time, x, branch) in enumerate(terms):
        stream = x.mean(-2) if x.dim() == 4 else x
        part = branch.mean(-2) if branch.dim() == 4 else branch
        length = stream[seen].float().norm(dim=-1).clamp_min(1e-12)
        following = terms[number + 1] if number + 1 < len(terms) else None
        after = None
        if following is not None and following[0] == layer and following[1] != name:
            after = following[3]
        elif following is None or following[0] != layer:
            after = states[layer + 1]
        moved = None
        if after is not None and after.shape == stream.shape and not torch.equal(after, stream):
            moved = float(((after - stream)[seen].float().norm(dim=-1) / length).mean())
        ratio = float((part[seen].float().norm(dim=-1) / length).mean())
        out.append(BranchMeasures(layer, name, time, ratio, moved, record.entropies.get(number)))
    return tuple(out)


def _lenses(
    model: nn.Module, stack: Stack, flows: list[Flow], states: list[Tensor], output: Any, context: Context
) -> tuple[Tensor | None, list[Tensor] | None, list[str]]:
    """The final answer, and the answer after each layer."""
    logits = getattr(output, "logits", None)
    read = _reader(model)
    if logits is None or read is None or logits.dim() < 2:
        return None, None, ["the model has no logits to read off, so there is no lens"]
    if logits.shape[-1] == 1:
        return None, None, ["the model predicts a number, so there is no lens"]
    norms = [_last_norm(stack, flow) for flow in (flows[0], *flows)]
    lens = [_chunked(read, norm(x), context, logits.shape[-1]) for x, norm in zip(states, norms, strict=True)]
    return logits.argmax(-1), lens, []


def _last_norm(stack: Stack, flow: Flow) -> nn.Module:
    """The norm that a state after this layer would pass if depth ended there: its block's, or the stack's."""
    for block in stack.flows:
        if isinstance(body := getattr(block, "body", None), nn.Module) and flow in list(body.modules()):
            norm = getattr(block, "norm", None)
            return norm if norm is not None else nn.Identity()
    return stack.norm if stack.norm is not None else nn.Identity()


def _reader(model: nn.Module) -> Callable[[Tensor, Context], Tensor] | None:
    """From normed states to logits."""
    if callable(logits := getattr(model, "logits", None)):
        return lambda x, _: logits(x)
    if callable(read := getattr(model, "read_off", None)):
        takes_context = len(signatures.signature(read).parameters) > 1
        return (lambda x, context: read(x, context)) if takes_context else (lambda x, _: read(x))
    of_embedding = getattr(getattr(model, "embedding", None), "logits", None)
    return (lambda x, _: of_embedding(x)) if callable(of_embedding) else None


def _chunked(read: Callable[[Tensor, Context], Tensor], x: Tensor, context: Context, classes: int) -> Tensor:
    """The most likely answers, a few sequences at a time, so that no matrix of all logits is kept."""
    rows = max(1, LENS_CHUNK // max(x.shape[1] * classes, 1))
    parts = []
    for begin in range(0, x.shape[0], rows):
        here, mask = x[begin : begin + rows], context.own.mask
        if mask is not None and mask.shape[0] == x.shape[0]:
            mask = mask[begin : begin + rows]
        parts.append(read(here, context._replace(own=context.own._replace(mask=mask))).argmax(-1))
    return torch.cat(parts)


def _layer_calls(model: nn.Module, batch: Mapping[str, Any] | Tensor) -> list[tuple[Flow, float, Tensor, Context]]:
    """Every layer as it acts on this input: flow, time, state before it, context; methods with memory are refused."""
    inputs = dict(batch) if isinstance(batch, Mapping) else {_first_argument(model): batch}
    with torch.no_grad(), _watched(inspected_stack(model)) as record:
        model(**inputs)
    for flow, *_ in record.flows:
        if flow.remembering is not None:
            raise OdeumError(
                f"{flow.remembering.history} hands a state from layer to layer, so a layer is no map of x alone; this "
                "measure is for methods without memory"
            )
    return [(flow, time, before, context) for flow, time, before, _, _, context in record.flows]


def lyapunov(model: nn.Module, batch: Mapping[str, Any] | Tensor, count: int = 4, *, seed: int = 0) -> np.ndarray:
    """The leading Lyapunov exponents of the path of the first sequence, per unit of time, largest first.

    Tangent vectors pass through each layer by Jacobian–vector products and are made orthonormal again (QR) after each
    layer; the logarithms of their growth are summed. A positive exponent means that small differences grow.
    """
    calls = _layer_calls(model, batch)
    x = calls[0][2][:1]
    size = x.numel()
    if not 1 <= count <= size:
        raise OdeumError(f"--lyapunov {count} must be from 1 to the {size} numbers of one sequence's state")
    random = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(size, count, generator=random, dtype=torch.float64))[0].to(x.device, x.dtype)
    growth, time = torch.zeros(count, dtype=torch.float64), 0.0
    for flow, start, before, context in calls:
        state, here = before[:1], _first_row(context, before.shape[0])

        def layer(value: Tensor, flow: Flow = flow, here: Context = here, start: float = start) -> Tensor:
            return flow(value, here, start)

        columns = [
            torch.func.jvp(layer, (state,), (basis[:, i].view_as(state),))[1].detach().flatten() for i in range(count)
        ]
        q, r = torch.linalg.qr(torch.stack(columns, 1).double())
        growth += r.diagonal().abs().clamp_min(1e-300).log()
        basis, time = q.to(x.dtype), time + abs(flow.duration)
    return np.sort((growth / time).numpy())[::-1].copy()


def _first_row(context: Context, batch: int) -> Context:
    """The context of the first sequence."""

    def first(source: Any) -> Any:
        mask, memory, rotary = source.mask, source.memory, source.rotary
        if mask is not None and mask.dim() == 4 and mask.shape[0] == batch:
            mask = mask[:1]
        if rotary is not None and rotary.positions.shape[0] == batch:
            rotary = rotary._replace(positions=rotary.positions[:1], tables=None)
        elif rotary is not None:
            rotary = rotary._replace(tables=None)
        return source._replace(mask=mask, memory=None if memory is None else memory[:1], rotary=rotary)

    if context.own.anchor is not None:
        raise OdeumError("this measure does not know the anchor of TransEvolve's blocks; use another architecture")
    return context._replace(own=first(context.own), other=first(context.other))


def local_error(model: nn.Module, batch: Mapping[str, Any] | Tensor) -> np.ndarray:
    """Error of each layer against two steps of half the length, ‖x₁ − x₂‖ / ‖x₁‖ · 2^p / (2^p − 1), mean over tokens.

    p is the order of the layer's method; a method without an order, or an adaptive solver, raises `OdeumError`.
    """
    out = []
    with torch.no_grad():
        for flow, start, before, context in _layer_calls(model, batch):
            solver: Any = flow.solver
            while isinstance(solver, GradientSolver):
                solver = solver.solver
            if not isinstance(solver, FixedSteps) or solver.method.order is None:
                raise OdeumError("a local error needs fixed steps of a method with an order; this model has none")
            order = solver.method.order
            fine = FixedSteps(solver.method, 2 * solver.steps)
            end = start + flow.duration
            once = solver(flow.field, start, end, before, context)
            twice = fine(flow.field, start, end, before, context)
            seen = _seen(before, context)
            error = (once - twice)[seen].norm(dim=-1) / once[seen].norm(dim=-1).clamp_min(1e-12)
            out.append(float(error.mean()) * 2**order / (2**order - 1))
    return np.array(out)
