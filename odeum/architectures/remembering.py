"""Layers whose methods remember: from their options to the method of each layer."""

from __future__ import annotations

import math
from collections.abc import Callable

from odeum.architectures.norms import make_norm
from odeum.architectures.solvers import Place, make_method, make_step
from odeum.errors import OdeumError
from odeum.integrators import (
    AdamsBashforth,
    AdamsMoulton,
    Coupled,
    Dense,
    ImplicitMidpoint,
    Leapfrog,
    LieTrotter,
    Method,
    Momentum,
    Nesterov,
    ReversibleHeun,
    RevNet,
    Strang,
)
from odeum.integrators.attention_residuals import AttentionResiduals
from odeum.integrators.streams import MOST_PERMUTED, HyperConnections, ManifoldHyperConnections
from odeum.integrators.term_by_term import TermByTerm
from odeum.settings.remembering import (
    AttentionResidualLayers,
    DenseLayers,
    HyperLayers,
    ImplicitLayers,
    ManifoldLayers,
    MomentumLayers,
    Multistep,
    NesterovLayers,
    PredictedMultistep,
    ReversibleLayers,
)

AROUND: dict[str, Callable[[Method], Method]] = {
    "euler": lambda part: part,
    "lie-trotter": LieTrotter,
    "strang": Strang,
}
"""how a method that takes one evaluation moves all terms at once or one after the other"""


@make_step.register(Multistep)
def multistep(settings: Multistep, place: Place) -> Method:
    """Adams–Bashforth of the order asked for."""
    if settings.method != "adams-bashforth":
        raise OdeumError(
            f"adams-bashforth is a method of its own; use parallel:method={settings.method} for that, without order"
        )
    return AdamsBashforth(settings.order)


@make_step.register(PredictedMultistep)
def predicted_multistep(settings: PredictedMultistep, place: Place) -> Method:
    """Adams's predictor and corrector of the order asked for."""
    if settings.method != "adams-moulton":
        raise OdeumError(
            f"adams-moulton is a method of its own; use parallel:method={settings.method} for that, without order"
        )
    return AdamsMoulton(settings.order)


@make_step.register(NesterovLayers)
def nesterov(settings: NesterovLayers, place: Place) -> Method:
    """Coefficients for each sublayer."""
    if settings.steps != 1:
        raise OdeumError(f"yurii makes one step a layer, of length 1: steps=1, not {settings.steps}")
    if settings.interval != 1.0:
        raise OdeumError(f"yurii makes one step a layer, of length 1: interval=1, not {settings.interval:g}")

    def accelerated(index: int) -> Method:
        norm = make_norm(place.shape) if settings.normed else None
        return Nesterov(norm, first=index == 0 and place.layers == (0,))

    return _with_own_weights("yurii", settings.method, accelerated, place)


@make_step.register(MomentumLayers)
def momentum(settings: MomentumLayers, place: Place) -> Method:
    """One velocity for all terms and layers."""
    if settings.method not in AROUND:
        raise OdeumError(
            f"a step of momentum is one evaluation: its method is {', '.join(AROUND)}, not {settings.method}"
        )
    return AROUND[settings.method](Momentum(settings.gamma))


@make_step.register(ReversibleLayers)
def reversible(settings: ReversibleLayers, place: Place) -> Method:
    """The scheme, with the option that is its own."""
    for option, scheme in (("gamma", "momentum"), ("keep", "coupling"), ("grid", "revnet")):
        if (value := getattr(settings, option)) is not None and settings.scheme != scheme:
            raise OdeumError(f"{option}={value} is for scheme={scheme}, and the scheme is {settings.scheme}")
    match settings.scheme:
        case "coupling":
            return Coupled(make_method(settings.method), 0.99 if settings.keep is None else settings.keep)
        case "momentum":
            own = MomentumLayers(method=settings.method, gamma=0.9 if settings.gamma is None else settings.gamma)
            return momentum(own, place)
    if settings.method != "lie-trotter":
        raise OdeumError(
            f"scheme={settings.scheme} is a step of its own; method={settings.method} is for coupling and momentum"
        )
    if settings.scheme == "revnet":
        return RevNet(settings.grid)
    return {"heun": ReversibleHeun, "leapfrog": Leapfrog}[settings.scheme]()


@make_step.register(ImplicitLayers)
def implicit(settings: ImplicitLayers, place: Place) -> Method:
    """With its number of iterations."""
    if settings.method != "implicit-midpoint":
        raise OdeumError(
            f"implicit-midpoint is a method of its own; use parallel:method={settings.method}, without iterations"
        )
    return ImplicitMidpoint(settings.iterations)


@make_step.register(DenseLayers)
def dense(settings: DenseLayers, place: Place) -> Method:
    """A row of weights for each place where the layer acts."""
    if settings.steps != 1:
        raise OdeumError(f"dense averages the states at the ends of layers of one step: steps=1, not {settings.steps}")
    return Dense(make_method(settings.method), place.layers)


@make_step.register(HyperLayers)
def hyper(settings: HyperLayers, place: Place) -> Method:
    """The sublayers read the streams in turn."""
    sizes = (place.shape.width, settings.streams)

    def connection(index: int) -> Method:
        return HyperConnections(*sizes, index, dynamic=settings.dynamic, eps=place.shape.norm_eps)

    return _with_own_weights("hyper", settings.method, connection, place)


@make_step.register(ManifoldLayers)
def mhc(settings: ManifoldLayers, place: Place) -> Method:
    """The same matrices' shape for each sublayer."""
    if settings.mixing == "permutations" and settings.streams > MOST_PERMUTED:
        raise OdeumError(
            f"mixing=permutations has a weight for each order of the streams, and {settings.streams} have "
            f"{math.factorial(settings.streams):,}; give streams={MOST_PERMUTED} at most, or mixing=sinkhorn"
        )
    if settings.mixing == "permutations" and settings.iterations is not None:
        raise OdeumError(f"iterations={settings.iterations} are for mixing=sinkhorn, and the mixing is permutations")
    ManifoldHyperConnections.check_length(settings.interval / settings.steps)
    iterations = None if settings.mixing == "permutations" else settings.iterations or 20
    sizes = (place.shape.width, settings.streams, iterations)
    return _with_own_weights(
        "mhc", settings.method, lambda index: ManifoldHyperConnections(*sizes, eps=place.shape.norm_eps), place
    )


@make_step.register(AttentionResidualLayers)
def attention_residuals(settings: AttentionResidualLayers, place: Place) -> Method:
    """A query for each sublayer, and one after the last."""
    shape = place.shape
    final = shape.depth - 1 in place.layers

    def attend(index: int) -> Method:
        terms = 1 if settings.method == "euler" else len(place.field.terms)
        first = index == 0 and place.layers == (0,) and settings.steps == 1
        last = final and (index + 1) % terms == 0
        return AttentionResiduals(shape.width, settings.block, first=first, last=last, eps=shape.norm_eps)

    return _with_own_weights("attention-residuals", settings.method, attend, place)


def _with_own_weights(who: str, method: str, make: Callable[[int], Method], place: Place) -> Method:
    """A method for the whole field (euler), or one for each term (lie-trotter), made by its place in the stack."""
    if method == "euler":
        return make(place.layers[0])
    if method == "lie-trotter":
        count = len(place.field.terms)
        return TermByTerm([make(place.layers[0] * count + term) for term in range(count)])
    raise OdeumError(
        f"{who} moves by one evaluation with coefficients a term: its method is lie-trotter or euler, not {method}"
    )
