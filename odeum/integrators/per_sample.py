"""Adaptive steps per sample: the result of a sample does not depend on the rest of the batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from odeum.errors import Diverged, OdeumError
from odeum.fields.base import Context, Field
from odeum.integrators.adaptive import Adaptive, weighted_sum, widest_dtype
from odeum.integrators.base import energy_of_step, forbid_draws, unmasked_positions
from odeum.integrators.runge_kutta import evaluate_stages


class AdaptivePerSample(Adaptive):
    """Like `Adaptive`, with a time and a step size per sample; fields get times of shape [batch, 1, …].

    All samples are evaluated until the last one is finished, so the cost is that of the slowest. Masked positions do
    not count in the error. Within a sample of a causal model, a step still depends on later tokens.
    """

    shares_steps = False

    def check(self, field: Field) -> None:
        super().check(field)
        if any(getattr(part, "timed", False) for _, part in field.named_modules()):
            raise OdeumError(
                "per-sample steps need weights that do not depend on time; use adapt=batch, or weights=constant"
            )

    def forward(self, field: Field, t0: float, t1: float, x: Tensor, context: Context) -> Tensor:
        self._begin(field, x, context)
        if not x.numel():
            return x
        count, span = x.shape[0], t1 - t0
        sign = math.copysign(1.0, span)
        shape = (count, *[1] * (x.dim() - 1))
        seen = unmasked_positions(x, context)

        def spread(numbers: Tensor) -> Tensor:
            return numbers.view(shape).to(x.dtype)

        t = torch.full((count,), t0, dtype=widest_dtype(x.device), device=x.device)
        with forbid_draws(field, "an adaptive solver"):
            first: Tensor | None = field(spread(t), x, context)
        assert first is not None
        evaluations = 1
        dt = self._first_steps(span, x, first, seen)
        while bool((active := sign * (t1 - t) > 1e-12 * abs(span)).any()):
            last = sign * (t + dt - t1) >= -1e-9 * abs(span)
            step = torch.where(active, torch.where(last, t1 - t, dt), 0.0)
            stages = evaluate_stages(
                self.tableau,
                len(self.tableau.b),
                field,
                spread(t),
                spread(step),
                x,
                context,
                first,
            )
            evaluations += len(stages) - (first is not None)
            y = x + spread(step) * weighted_sum(self.tableau.b, stages)
            error = self._errors(spread(step), x, y, stages, seen)
            if not bool(error[active].isfinite().all()):
                raise Diverged("the field is not finite; a smaller learning rate or a norm may help")
            accepted = active & (error <= 1.0)
            if self.moved is not None:
                lengths = spread(torch.where(accepted, step, 1.0))
                self.moved.append(energy_of_step(torch.where(accepted.view(shape), x, y), y, lengths, context))
            here = accepted.view(shape)
            x = torch.where(here, y, x)
            ends = stages[-1] if self.tableau.first_same_as_last else None
            first = None if ends is None else torch.where(here, ends, stages[0])
            t = torch.where(accepted, torch.where(last, t1, t + step), t)
            factor = 0.9 * error.clamp_min(1e-10) ** (-1.0 / self.tableau.error_order)
            dt = torch.where(active, step * factor.clamp(0.2, 5.0), dt)
            small = active & (dt.abs() < 1e-10 * abs(span))
            if bool(small.any()) or evaluations > self.max_evaluations:
                where = int(torch.where(active, sign * (t1 - t), -1.0).argmax())
                raise self._stiff(float(t[where]), t1, evaluations)
        self.evaluations = evaluations
        return x

    @torch.no_grad()
    def _errors(self, dt: Tensor, x: Tensor, y: Tensor, stages: list[Tensor], seen: Tensor | None) -> Tensor:
        assert self.tableau.error is not None
        scale = self.atol + self.rtol * torch.maximum(x.abs(), y.abs())
        return _rms_of_samples(dt * weighted_sum(self.tableau.error, stages) / scale, seen)

    @torch.no_grad()
    def _first_steps(self, span: float, x: Tensor, first: Tensor, seen: Tensor | None) -> Tensor:
        scale = self.atol + self.rtol * x.abs()
        size, speed = _rms_of_samples(x / scale, seen), _rms_of_samples(first / scale, seen)
        guess = torch.where((size > 1e-5) & (speed > 1e-5), 0.01 * size / speed, 0.1 * abs(span))
        return torch.copysign(guess.clamp_max(abs(span)), torch.full_like(guess, span))


def _rms_of_samples(x: Tensor, seen: Tensor | None) -> Tensor:
    squares = x.to(widest_dtype(x.device)).pow(2)
    if seen is None:
        return squares.flatten(1).mean(1).sqrt()
    return (squares.mean(2).masked_fill(~seen, 0.0).sum(1) / seen.sum(1).clamp_min(1)).sqrt()
