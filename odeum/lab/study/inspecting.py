"""The result of `odeum inspect`: samples, tables, advice, picture and page."""

from __future__ import annotations

import base64
import io
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from odeum.errors import OdeumError
from odeum.inspection import Inspection, LayerMeasures, inspect, inspected_stack, local_error, lyapunov, plane
from odeum.lab.study.grid import Grid
from odeum.lab.study.page import render
from odeum.looping import Looped
from odeum.surgery import over_time, stacks_of

if TYPE_CHECKING:
    from odeum.lab.tasks import Task
    from odeum.lab.tasks.base import Batch
    from odeum.lab.tasks.run import Run

MAX_TOKENS = 4096
"""positions of a sample, over all its sequences"""
MOST_SHOWN = 4
"""sequences whose tokens a page shows"""
MOST_PARTICLES = 512
"""tokens per sequence that a page shows"""
MOST_LENS = 64
"""positions in the lens table of a page"""
MOST_BYTES = 5_000_000
"""size of a page, above which it is thinned"""
SMALL = 0.1
"""influence of a layer, or share of a branch, below which it is a candidate for removal"""
AGREED = 0.95
"""share of answers that agree from which on a depth is a candidate for an early exit"""


@dataclass(frozen=True)
class Measure:
    """A column of the tables and a chart of the page."""

    name: str
    head: str
    about: str
    """one line"""


MEASURES = (
    Measure(
        "displacement",
        "moves",
        "How far a token moves in this layer or sublayer, relative to its length: ‖x′ − x‖ / ‖x‖.",
    ),
    Measure(
        "influence",
        "influence",
        "Block influence, 1 − cos(x, x′): near 0 the layer or sublayer hardly turns any state.",
    ),
    Measure("turn", "turn °", "Angle between this displacement and the one before; 0 is a straight path, 90 random."),
    Measure("curvature", "curvature", "Turn in radians per relative length of path: how sharply tokens change course."),
    Measure("norm", "norm", "Size of the states after the layer, ‖x′‖ / √width."),
    Measure("effective_rank", "rank", "Number of directions that the tokens fill (exp of the spectral entropy)."),
    Measure("alikeness", "alike", "Mean cosine between two tokens of a sequence; 1 means that all are one cluster."),
    Measure("agreement", "lens agrees", "Share of answers that equal the final ones if depth ended after this layer."),
    Measure("local_error", "local error", "Relative error of this layer's step against two half steps."),
)
BRANCH_MEASURES = (
    Measure("ratio", "branch / stream", "Size of what the sublayer adds, beside the stream: ‖branch‖ / ‖stream‖."),
    MEASURES[0],
    MEASURES[1],
    Measure("entropy", "entropy", "Entropy of attention in nats: 0 looks at one token, log n at n tokens equally."),
)
STREAM_MEASURES = {
    "streams": Measure(
        "streams", "norm of each stream", "‖stream‖ / √width of each stream; norm is that of their mean."
    ),
    "stream_displacements": Measure(
        "stream_displacements", "moves of each stream", "‖x′ − x‖ / ‖x‖ of each stream; moves is that of their mean."
    ),
}
ADVICE = {
    "where": "The layer or sublayer, numbered from 0.",
    "measured": "Means over this sample; the list below says what each measure is.",
    "what it suggests": "A candidate to measure on other examples; not a verdict.",
}
LYAPUNOV = (
    "Largest growth rates of small differences over the whole depth, per unit of time: above 0 some grow, below 0 all "
    "shrink."
)


@dataclass(frozen=True)
class Look:
    """One model under one solver on one sample."""

    label: str
    task: Task
    model: Any
    sample: Batch
    inspection: Inspection
    errors: np.ndarray | None = None
    exponents: np.ndarray | None = None
    first: int = 0
    """number of the first layer that is shown"""
    notes: tuple[str, ...] = field(default=())

    def value(self, layer: LayerMeasures, name: str) -> float | None:
        """One measure of one layer."""
        if name == "influence":
            return 1 - layer.cosine
        if name == "local_error":
            return None if self.errors is None else float(self.errors[layer.layer])
        return getattr(layer, name)

    @property
    def measures(self) -> list[Measure]:
        """Those that this model has."""
        layers = self.inspection.layers
        return [m for m in MEASURES if any(self.value(layer, m.name) is not None for layer in layers)]


def taken_sample(task: Task, model: Any, inputs: Sequence[Any] | None, count: int) -> Batch:
    """A batch of the inputs, or of the test part, of at most MOST_TOKENS positions."""
    batch = task.sample(count) if inputs is None else task.as_batch(model, inputs)
    positions = _positions(model, batch)
    rows = max(1, min(count, MAX_TOKENS // max(1, positions)))
    return {key: value[:rows] for key, value in batch.items()}


def _positions(model: Any, batch: Batch) -> int:
    ids = batch.get("decoder_input_ids", batch.get("input_ids"))
    return int(ids.shape[1]) if ids is not None else int(getattr(model, "particles", 1))


def look(
    label: str,
    run: Run,
    task: Task,
    sample: Batch,
    *,
    errors: bool = False,
    exponents: int | None = None,
    layers: tuple[int, int] | None = None,
) -> Look:
    """Inspect a run on a sample; `layers` are the first and the last to show."""
    model: Any = run.model.eval()
    decoder = sample.get("decoder_input_ids")
    seen = None
    if decoder is not None:  # padding behind a translation; its first token is the one that begins texts
        seen = (decoder != 0) | (torch.arange(decoder.shape[1]) == 0)
    result = inspect(model, sample, keep=MOST_SHOWN, seen=seen)
    error = local_error(model, sample, seen=seen) if errors else None
    exponent = lyapunov(model, sample, exponents, seen=seen) if exponents is not None else None
    first = 0
    if layers is not None:
        first, last = layers
        if not 0 <= first <= last < len(result.layers):
            raise OdeumError(
                f"--layers {first}-{last} is out of range: the model has layers 0 to {len(result.layers) - 1}"
            )
        result = Inspection(
            result.layers[first : last + 1],
            tuple(branch for branch in result.branches if first <= branch.layer <= last),
            None if result.lens is None else result.lens[first : last + 2],
            result.answer,
            result.states[first : last + 2],
            result.notes,
            result.agreement_before if first == 0 else result.layers[first - 1].agreement,
        )
    return Look(label, task, model, sample, result, error, exponent, first)


# tables


def _number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:.0f}"


def layer_grid(here: Look) -> Grid:
    """One row per layer."""
    measures = here.measures
    several = [name for name in STREAM_MEASURES if any(getattr(layer, name) for layer in here.inspection.layers)]
    heads = ["layer", *(m.head for m in measures), *(STREAM_MEASURES[name].head for name in several)]
    lines = [
        [
            str(layer.layer),
            *(_number(here.value(layer, m.name)) for m in measures),
            *(" ".join(map(_number, getattr(layer, name))) or "–" for name in several),
        ]
        for layer in here.inspection.layers
    ]
    return Grid.of(heads, lines, (0,))


def branch_grid(here: Look) -> Grid:
    """One row per evaluation of a sublayer."""
    branches = here.inspection.branches
    shown = [m for m in BRANCH_MEASURES if any(getattr(b, m.name) is not None for b in branches)]
    lines = [[str(b.layer), b.term, f"{b.time:g}", *(_number(getattr(b, m.name)) for m in shown)] for b in branches]
    return Grid.of(["layer", "sublayer", "time", *(m.head for m in shown)], lines, (0, 1))


def follow_up(here: Look) -> str:
    """The command that measures what an edit of this model costs, as a sentence."""
    if isinstance(inspected_stack(here.model), Looped):
        return "odeum evaluate RUN --repeats N measures other numbers of repeats; odeum surgery does not edit loops."
    try:
        stacks_of(here.model)
    except OdeumError:
        return (
            "odeum surgery does not edit this architecture, whose layers are not functions of the state alone: train "
            "another depth."
        )
    return "odeum surgery measures it on other examples."


def advice_grid(here: Look) -> Grid:
    """Suggestions that follow from the measures; each row is a candidate, not a verdict."""
    layers, lines = here.inspection.layers, []
    ordered = sorted(layers, key=lambda layer: 1 - layer.cosine)
    calm = [layer for layer in ordered if 1 - layer.cosine < SMALL][:3]
    for layer in calm or ordered[:1]:
        verdict = "candidate for skipping" if calm else "but by too much to skip it unseen"
        if over_time(inspected_stack(here.model)):  # one field for all layers: none can be skipped alone
            verdict = "candidate for longer steps" if calm else "but by too much for a longer step"
        lines.append(
            [
                f"layer {layer.layer}",
                f"influence {_number(1 - layer.cosine)}, moves {_number(layer.displacement)}",
                f"turns the states least: {verdict}" if layer is ordered[0] else f"turns the states little: {verdict}",
            ]
        )
    shares = [layer.agreement or 0.0 for layer in layers]
    early = next((i for i in range(len(layers) - 1) if min(shares[i:]) >= AGREED), None)
    if early is not None:
        later = len(layers) - 1 - early
        what = "the later layer changes" if later == 1 else f"the {later} later layers change"
        lines.append(
            [
                f"after layer {layers[early].layer}",
                f"lens agrees on {100 * shares[early]:.1f} %",
                f"{what} few answers: candidate for an early exit",
            ]
        )
    elif here.inspection.agreement_before is not None and len(layers) > 1:
        change = [b - a for a, b in itertools.pairwise([here.inspection.agreement_before, *shares])]
        most = layers[int(np.argmax(change))]
        lines.append(
            [
                f"layer {most.layer}",
                f"lens agreement {100 * max(change):+.1f} points",
                "changes most answers to the final ones; no earlier depth agrees on 95 % and stays there",
            ]
        )
    if here.errors is not None:
        worst = max(layers, key=lambda layer: here.errors[layer.layer] if here.errors is not None else 0.0)
        lines.append(
            [
                f"layer {worst.layer}",
                f"local error {_number(here.value(worst, 'local_error'))}",
                "largest error of a step: candidate for more steps",
            ]
        )
    named = [b for b in here.inspection.branches if b.term in ("attention", "feedforward")]
    if named:
        least = min(named, key=lambda branch: branch.ratio)
        lines.append(
            [
                f"{least.term} of layer {least.layer}",
                f"{100 * least.ratio:.1f} % of the stream",
                "the smallest branch: "
                + ("candidate for removal" if least.ratio < SMALL else "no branch is negligible"),
            ]
        )
    if here.exponents is not None:
        some = "some small differences grow" if float(here.exponents[0]) > 0 else "all small differences shrink"
        lines.append(
            [
                "whole depth",
                f"Lyapunov exponent {_number(float(here.exponents[0]))}",
                f"{some} over the depth",
            ]
        )
    return Grid.of(["where", "measured", "what it suggests"], lines, (0, 1, 2))


def records(looks: Sequence[Look]) -> list[dict[str, Any]]:
    """Rows of table.csv: each layer, and below it its sublayers."""
    out = []
    names = [m.name for m in MEASURES]
    extra = [m.name for m in BRANCH_MEASURES if m.name not in names]
    for here in looks:
        for layer in here.inspection.layers:
            values = {name: here.value(layer, name) for name in names}
            head = {"model": here.label, "layer": layer.layer, "part": "layer", "time": layer.time}
            streams = " ".join(f"{x:.6g}" for x in layer.streams)
            out.append({**head, **values, **dict.fromkeys(extra), "streams": streams})
            for b in here.inspection.branches:
                if b.layer == layer.layer:
                    part = {name: getattr(b, name, None) for name in (*names, *extra)}
                    out.append({**head, "part": b.term, "time": b.time, **part, "streams": ""})
    return out


def as_json(here: Look) -> dict[str, Any]:
    """All numbers of one look."""
    return {
        "model": here.label,
        "sequences": int(next(iter(here.sample.values())).shape[0]),
        **here.inspection.as_dict(),
        "local_error": None if here.errors is None else here.errors.tolist(),
        "lyapunov": None if here.exponents is None else here.exponents.tolist(),
        "advice": [list(line) for line in advice_grid(here).lines],
    }


# names of positions and answers


def position_names(here: Look, row: int) -> list[str]:
    """The token or the patch at each position of one sequence, without padding."""
    ids = here.sample.get("decoder_input_ids", here.sample.get("input_ids"))
    if ids is not None:
        mask = here.sample.get("attention_mask") if "decoder_input_ids" not in here.sample else None
        length = int(ids.shape[1]) if mask is None else int(mask[row].sum())
        if "decoder_input_ids" in here.sample:
            length = max(1, int((ids[row] != 0).nonzero().max()) + 1)
        return here.task.token_names(ids[row, :length].tolist())
    count, extra = here.inspection.states.shape[2], _extra_tokens(here.model)
    side = max(1, math.isqrt(max(1, count - extra)))
    patches = [f"patch {i // side + 1},{i % side + 1}" for i in range(count - extra)]
    return [*(["class token"] * extra), *patches]


def _extra_tokens(model: Any) -> int:
    """Positions before the patches of an image, such as the class token."""
    return int(getattr(model, "tokens", 0))


def answer_namer(here: Look) -> Callable[[int], str]:
    """A function from a class or token number to its name."""
    classes = getattr(here.task, "classes", None)
    if classes is not None and here.inspection.answer is not None and here.inspection.answer.ndim == 1:
        return lambda number: str(classes[number])
    return lambda number: here.task.token_names([number])[0]


# picture


def picture(looks: Sequence[Look]) -> bytes:
    """particles.png: the paths of the first sequence, and the measures over depth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    paths = _planes(looks, 0)
    names = [m for m in MEASURES if any(m in here.measures for here in looks)]
    columns = max(4, len(looks))
    rows = -(-len(names) // columns)
    figure = plt.figure(figsize=(13, 6.5 + 1.9 * rows), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[5.5, 1.9 * rows])
    upper, lower = parts
    shared = _same_start([here.inspection.states[:, 0] for here in looks])
    fields = upper.subplots(1, len(looks), squeeze=False, sharex=shared, sharey=shared)
    for here, path, axes in zip(looks, paths, fields[0], strict=True):
        _draw_paths(axes, path, position_names(here, 0)[: path.shape[1]])
        axes.set_title(here.label, fontsize=10)
    for measure, axes in zip(names, lower.subplots(rows, columns, squeeze=False).flat, strict=False):
        for here in looks:
            values = [(layer.layer, here.value(layer, measure.name)) for layer in here.inspection.layers]
            axes.plot([x for x, v in values if v is not None], [v for _, v in values if v is not None], "o-", ms=3)
        axes.set_title(measure.head, fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.tick_params(labelsize=7)
    for axes in lower.axes[len(names) :]:
        axes.set_axis_off()
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110, metadata={"Software": None})
    plt.close(figure)
    return content.getvalue()


def _draw_paths(axes: Any, path: np.ndarray, names: Sequence[str]) -> None:
    import matplotlib

    colours = matplotlib.colormaps["turbo"](np.linspace(0.08, 0.95, path.shape[1]))
    for token, colour in enumerate(colours):
        axes.plot(path[:, token, 0], path[:, token, 1], color=colour, lw=0.8, alpha=0.6)
    axes.scatter(path[0, :, 0], path[0, :, 1], s=10, facecolors="none", edgecolors=colours, linewidths=0.8)
    axes.scatter(path[-1, :, 0], path[-1, :, 1], s=18, color=colours)
    for token in _spread(path.shape[1], 24):
        text = names[token].replace("$", r"\$") if token < len(names) else ""
        axes.annotate(_drawable(text[:14]), path[-1, token], fontsize=7, xytext=(3, 2), textcoords="offset points")
    axes.set(xticks=[], yticks=[])
    axes.set_xlabel("ring: before the first layer, dot: after the last; plane of the two main directions", fontsize=7)


def _drawable(text: str) -> str:
    """Without characters that the font of the picture does not have."""
    return "".join(letter if 32 <= ord(letter) < 0x250 else "·" for letter in text)


def _planes(looks: Sequence[Look], sequence: int) -> list[np.ndarray]:
    """Paths of one sequence without padding; models of one width with the same start share the plane."""
    paths = []
    for here in looks:
        states = here.inspection.states[:, min(sequence, here.inspection.states.shape[1] - 1)]
        paths.append(states[:, : len(position_names(here, sequence))])
    if _same_start(paths):
        return plane(*paths)
    return [plane(path)[0] for path in paths]


def _same_start(paths: Sequence[np.ndarray]) -> bool:
    first = paths[0]
    return all(path.shape[1:] == first.shape[1:] and np.allclose(path[0], first[0], atol=1e-5) for path in paths)


def _spread(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, evenly."""
    return list(range(count)) if count <= most else sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


# page


def page(looks: Sequence[Look], sample: str, command: str) -> str:
    """page.html: self-contained; thinned, with a note, if it would be larger than MOST_BYTES."""
    tokens, lens, sequences, notes = MOST_PARTICLES, MOST_LENS, MOST_SHOWN, ""
    while True:
        text = _page(looks, sample, command, tokens, lens, sequences, notes)
        if len(text.encode()) <= MOST_BYTES or (tokens <= 8 and sequences == 1):
            return text
        if sequences > 1:
            sequences = 1
        else:
            tokens, lens = tokens // 2, max(8, lens // 2)
        notes = f"This page is thinned to {sequences} sequence and at most {tokens} tokens, to stay below 5 MB."


def _page(looks: Sequence[Look], sample: str, command: str, tokens: int, lens: int, sequences: int, note: str) -> str:
    rows = min(sequences, *(here.inspection.states.shape[1] for here in looks))
    scenes = [_scene(looks, row, tokens) for row in range(rows)]
    notes = [n for here in looks for n in (*here.inspection.notes, *here.notes)]
    if any(scene["thinned"] for scene in scenes):
        notes.append(f"The picture shows at most {tokens} tokens of a sequence, evenly spread.")
    return render(
        "inspect.html",
        title=f"Depth as time: {looks[0].label}",
        sample=sample,
        looks=[
            {
                "label": here.label,
                "layers": layer_grid(here),
                "branches": branch_grid(here),
                "advice": advice_grid(here),
                "follow_up": follow_up(here),
                "lens": _lens_table(here, lens),
                "exponents": None if here.exponents is None else [_number(float(x)) for x in here.exponents],
            }
            for here in looks
        ],
        charts=charts(looks),
        about=_explained(looks),
        advice=ADVICE,
        named=any(here.sample.get("images") is None or _extra_tokens(here.model) for here in looks),
        lyapunov=LYAPUNOV,
        scenes=scenes,
        labels=[here.label for here in looks],
        notes=[*([note] if note else []), *dict.fromkeys(notes)],
        command=command,
    )


def _explained(looks: Sequence[Look]) -> dict[str, str]:
    """The explanation of each column that a page has."""
    several = any(layer.streams for here in looks for layer in here.inspection.layers)
    return {m.head: m.about for m in (*MEASURES, *BRANCH_MEASURES, *(STREAM_MEASURES.values() if several else ()))}


def _scene(looks: Sequence[Look], row: int, tokens: int) -> dict[str, Any]:
    """One sequence as numbers from 0 to 10,000 in the plane, for each look."""
    paths = _planes(looks, row)
    shared = _same_start([here.inspection.states[:, row] for here in looks])
    low, high = [np.min([p.min((0, 1)) for p in paths], 0), np.max([p.max((0, 1)) for p in paths], 0)]
    sides, thinned = [], False
    for here, path in zip(looks, paths, strict=True):
        start, end = (low, high) if shared else (path.min((0, 1)), path.max((0, 1)))
        size = float(max(*(end - start), 1e-9))
        chosen = _spread(path.shape[1], tokens)
        thinned |= len(chosen) < path.shape[1]
        points = ((path[:, chosen] - (start + end) / 2) / size * 10_000).round().astype(int) + 5_000
        names = position_names(here, row)
        sides.append(
            {
                "points": points.tolist(),
                "names": [names[i][:40] for i in chosen],
                "places": chosen,
                "first": here.first,
                "lens": _lens_of(here, row, chosen),
                "image": _image_of(here, row),
            }
        )
    return {"sides": sides, "thinned": thinned, "name": _sequence_name(looks[0], row)}


def _sequence_name(here: Look, row: int) -> str:
    if "images" in here.sample:
        return f"image {row + 1}"
    text = " ".join(position_names(here, row))
    return f"{row + 1}: {text[:60]}{'…' if len(text) > 60 else ''}"


def _lens_of(here: Look, row: int, chosen: Sequence[int]) -> list[list[str]] | None:
    """Names of the answers after each layer at the chosen positions, or of the one answer."""
    lens = here.inspection.lens
    if lens is None or row >= lens.shape[1]:
        return None
    name = answer_namer(here)
    if lens.ndim == 2:
        return [[name(int(number))] for number in lens[:, row]]
    return [[name(int(layer[row, i]))[:24] for i in chosen] for layer in lens]


def _image_of(here: Look, row: int) -> dict[str, Any] | None:
    """The picture itself and how it is cut into patches."""
    images = here.sample.get("images")
    if images is None:
        return None
    from PIL import Image

    x = images[row].float()
    x = (x - x.amin()) / (x.amax() - x.amin()).clamp_min(1e-6) * 255
    array = x.round().byte().permute(1, 2, 0).numpy()
    shown = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array[:, :, :3])
    shown.thumbnail((256, 256))
    content = io.BytesIO()
    shown.save(content, format="PNG")
    extra = _extra_tokens(here.model)
    side = max(1, math.isqrt(max(1, here.inspection.states.shape[2] - extra)))
    data = base64.b64encode(content.getvalue()).decode()
    return {"data": f"data:image/png;base64,{data}", "side": side, "extra": extra}


def _lens_table(here: Look, most: int) -> dict[str, Any] | None:
    """Answers, layers × positions of the first sequence, or layers × examples."""
    lens, answer = here.inspection.lens, here.inspection.answer
    if lens is None or answer is None:
        return None
    name = answer_namer(here)
    if lens.ndim == 2:
        chosen = _spread(lens.shape[1], most)
        heads = [f"example {i + 1}" for i in chosen]
        cells, final = lens[:, chosen], answer[chosen]
    else:
        names = position_names(here, 0)
        chosen = _spread(len(names), most)
        heads = [names[i][:20] for i in chosen]
        cells, final = lens[:, 0, chosen], answer[0, chosen]
    rows = []
    for depth, line in enumerate(cells):
        label = "input" if here.first + depth == 0 else f"after {here.first + depth - 1}"
        rows.append(
            {"label": label, "cells": [(name(int(a))[:20], bool(a == b)) for a, b in zip(line, final, strict=True)]}
        )
    return {"heads": heads, "rows": rows, "thinned": len(chosen) < (lens.shape[1] if lens.ndim == 2 else len(names))}


CHART = (220, 90)
"""width and height of a small chart, in its own units"""


def charts(looks: Sequence[Look]) -> list[dict[str, Any]]:
    """Small charts of the measures over depth: points of one line per look, with the range that is drawn."""
    out = []
    wide, high = CHART
    for measure in MEASURES:
        series = [[here.value(layer, measure.name) for layer in here.inspection.layers] for here in looks]
        numbers = [value for line in series for value in line if value is not None]
        if not numbers:
            continue
        low, top = min(0.0, *numbers), max(numbers)
        span = (top - low) or 1.0
        lines = []
        for line in series:
            count = len(line)
            lines.append(
                [
                    (round(wide * (i + 1) / count, 1), round(high - high * (v - low) / span, 1), _number(v))
                    for i, v in enumerate(line)
                    if v is not None
                ]
            )
        out.append(
            {"head": measure.head, "about": measure.about, "lines": lines, "low": _number(low), "high": _number(top)}
        )
    return out
