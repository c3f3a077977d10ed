"""Fields composed of fields: sums, scalings, norms, stochastic depth, and a whole step as a field."""

from __future__ import annotations

import re
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from odeum.errors import OdeumError
from odeum.fields.base import Context, Field, projects_anywhere
from odeum.fields.noise import Dropout


class Sum(Field):
    """The sum f₁ + f₂ + …; a splitting integrates the summands one after the other.

    Each summand has a name that is part of the names of its weights: the given name, or its role.

    Examples:
        >>> Sum(SelfAttention(64, 4), FeedForward(64), pull=ToMean())  # attention, feedforward, pull
    """

    def __init__(self, *fields: Field, **named: Field) -> None:
        super().__init__()
        if not fields and not named:
            raise OdeumError("a Sum needs at least one field")
        self.fields = nn.ModuleDict()
        for name, field in by_name(*fields, **named).items():
            if hasattr(self.fields, name) or not name.isidentifier():
                raise OdeumError(f"a field of a Sum cannot be called '{name}'; give it another name")
            self.fields[name] = field

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        total: Tensor | None = None
        for field in self.fields.values():
            part = field(t, x, context)
            total = part if total is None else total + part
        assert total is not None
        return total

    @property
    def terms(self) -> tuple[Field, ...]:
        return tuple(self.fields.values())  # ty: ignore[invalid-return-type]

    def formula(self, x: str) -> str:
        return " + ".join(field.formula(x) for field in self.terms)


class Wrapper(Field):
    """Base class of fields that wrap one field."""

    def __init__(self, field: Field) -> None:
        super().__init__()
        if not field.projects and projects_anywhere(field):
            raise OdeumError(
                f"{type(self).__name__} around a sum hides its terms, and with them the norm after each; "
                f"put {type(self).__name__} around each term, or one norm after the sum"
            )
        self.field = field

    @property
    def projects(self) -> bool:
        return self.field.projects

    def project(self, x: Tensor) -> Tensor:
        return self.field.project(x)


class Scaled(Wrapper):
    """A field times a constant: c · f."""

    def __init__(self, factor: float, field: Field) -> None:
        super().__init__(field)
        self.factor = factor

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.factor * self.field(t, x, context)

    def formula(self, x: str) -> str:
        factor = {0.5: "½", 0.25: "¼"}.get(self.factor, f"{self.factor:g}")
        inner = self.field.formula(x)
        return f"{factor} ({inner})" if " + " in inner else f"{factor} {inner}"


class LearnedStepSize(Wrapper):
    """A field with a learned step length: e^s · f with a learned scalar s, initially 0."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.pace = nn.Parameter(torch.zeros(1))  # not a scalar, which FSDP cannot shard

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.pace.exp() * self.field(t, x, context)

    def formula(self, x: str) -> str:
        inner = self.field.formula(x)
        return f"τ ({inner})" if " + " in inner else f"τ {inner}"


class PreNorm(Wrapper):
    """A field of the normalised state: f(norm(x))."""

    def __init__(self, norm: nn.Module, field: Field) -> None:
        super().__init__(field)
        self.norm = norm

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.field(t, self.norm(x), context)

    def formula(self, x: str) -> str:
        return self.field.formula(f"N({x})")


class PeriNorm(Wrapper):
    """A norm before and after a field: outer(f(inner(x))); with an identity as `inner`, only after it."""

    def __init__(self, inner: nn.Module, field: Field, outer: nn.Module) -> None:
        super().__init__(field)
        self.inner = inner
        self.outer = outer

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.outer(self.field(t, self.inner(x), context))

    def formula(self, x: str) -> str:
        return f"N({self.field.formula(x if isinstance(self.inner, nn.Identity) else f'N({x})')})"


class PostNorm(Wrapper):
    """A field whose steps end with a norm: x ← norm(x + dt f(x)), as in the original transformer."""

    def __init__(self, field: Field, norm: nn.Module) -> None:
        super().__init__(field)
        self.norm = norm

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.field(t, x, context)

    @property
    def projects(self) -> bool:
        return True

    def project(self, x: Tensor) -> Tensor:
        return self.norm(self.field.project(x))

    def formula(self, x: str) -> str:
        return self.field.formula(x)


class Highway(Wrapper):
    """Post-norm with a scaled residual: f / α, and steps end with outer(x), because N(α x + f) = N(x + f / α)."""

    def __init__(self, field: Field, outer: nn.Module, alpha: float) -> None:
        super().__init__(field)
        self.outer = outer
        self.alpha = alpha

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.field(t, x, context) / self.alpha

    @property
    def projects(self) -> bool:
        return True

    def project(self, x: Tensor) -> Tensor:
        return self.outer(self.field.project(x))

    def formula(self, x: str) -> str:
        inner = self.field.formula(x)
        return f"1/{self.alpha:g} {f'({inner})' if ' + ' in inner else inner}"


class StochasticDepth(Wrapper):
    """A field that is dropped with probability `rate` per sample in training (Huang et al. 2016)."""

    def __init__(self, field: Field, rate: float) -> None:
        super().__init__(field)
        if not 0.0 <= rate < 1.0:
            raise OdeumError(f"stochastic_depth must be a probability of at least 0 and below 1, got {rate}")
        self.rate = rate

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        out = self.field(t, x, context)
        if not self.training or self.rate == 0.0:
            return out

        def keep() -> Tensor:
            alive = torch.rand(out.shape[0], *[1] * (out.dim() - 1), device=x.device) >= self.rate
            return alive.to(x.dtype) / (1.0 - self.rate)

        return out * (keep() if context.noise is None else context.noise.draw(self, keep))

    def formula(self, x: str) -> str:
        return self.field.formula(x)


class Stepper(Protocol):
    """The part of a method's interface that `Increment` needs."""

    history: str | None

    def check(self, field: Field) -> None: ...

    def step(self, field: Field, t: float, dt: float, x: Tensor, context: Context) -> Tensor: ...


class Increment(Field):
    """The increment of a whole step, step(x) − x, as the field of a higher-order method (ODE Transformer)."""

    def __init__(self, method: Stepper, field: Field) -> None:
        super().__init__()
        if method.history:
            raise OdeumError(
                f"Increment takes a whole step as a field, to be evaluated at any state, but {method.history} "
                "remembers the steps before; use a method without memory inside"
            )
        method.check(field)
        self.field = field
        self.method = method

    def forward(self, t: float, x: Tensor, context: Context) -> Tensor:
        return self.method.step(self.field, t, 1.0, x, context) - x

    def formula(self, x: str) -> str:
        return f"layer({x}) − {f'({x})' if ' ' in x else x}"


def by_name(*fields: Field, **named: Field) -> dict[str, Field]:
    """The fields under the names they have in a Sum: attention, cross, feedforward, or their class; feedforward_2."""
    out: dict[str, Field] = {}
    for field in fields:
        inner = field
        while isinstance(inner, Wrapper | Increment):
            inner = inner.field
        name = inner.role or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(inner).__name__).lower()
        name += "_field" if hasattr(nn.ModuleDict(), name) else ""  # a class called Float or Update
        same = sum(1 for other in out if re.fullmatch(rf"{name}(_\d+)?", other))
        out[f"{name}_{same + 1}" if same else name] = field
    if twice := out.keys() & named.keys():
        raise OdeumError(f"a Sum has two fields called '{min(twice)}'; give one of them another name")
    return out | named


def randomness(field: nn.Module) -> str | None:
    """A part that draws random numbers (it is in training mode), in words, or None: some solvers need a fixed field."""
    for name, module in field.named_modules():
        if isinstance(module, Dropout | StochasticDepth) and module.rate > 0.0 and module.training:
            return f"{type(module).__name__}({module.rate:g}) at {name or 'the root'}"
    return torch_randomness(field)


def torch_randomness(field: nn.Module) -> str | None:
    """A part of torch.nn that draws new random numbers each time it is called, in words, or None.

    What a field draws itself, by nn.functional.dropout or torch.rand, is seen when it has done so: `noise.DrawWatch`.
    """
    for name, module in field.named_modules():
        rate = 0.0
        if isinstance(module, _DropoutNd):
            rate = module.p
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            rate = module.dropout
        elif isinstance(module, nn.RReLU):
            rate = module.upper - module.lower
        if rate > 0.0 and module.training:
            return f"{type(module).__name__}({rate:g}) at {name or 'the root'}"
    return None


def refuse_new_draws(field: nn.Module) -> None:
    """For a step that evaluates the field, or a term of it, several times: it must be one field."""
    if noisy := torch_randomness(field):
        raise OdeumError(
            f"a step of several stages evaluates one field, but {noisy} draws a new mask in each; use "
            "odeum.fields.Dropout(rate) as dropout(x, context.noise), whose mask is kept for the step"
        )
