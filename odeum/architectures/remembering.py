"""Layers whose methods remember: from their options to the method of each layer."""

from __future__ import annotations

from collections.abc import Callable

from odeum.architectures.solvers import Place, make_method, make_step
from odeum.errors import OdeumError
from odeum.integrators import AdamsBashforth, Dense, LieTrotter, Method, Momentum, Strang
from odeum.settings.remembering import DenseLayers, MomentumLayers, Multistep

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


@make_step.register(MomentumLayers)
def momentum(settings: MomentumLayers, place: Place) -> Method:
    """One velocity for all terms and layers."""
    if settings.method not in AROUND:
        raise OdeumError(
            f"a step of momentum is one evaluation: its method is {', '.join(AROUND)}, not {settings.method}"
        )
    return AROUND[settings.method](Momentum(settings.gamma))


@make_step.register(DenseLayers)
def dense(settings: DenseLayers, place: Place) -> Method:
    """A row of weights for each place where the layer acts."""
    if settings.steps != 1:
        raise OdeumError(f"dense averages the states at the ends of layers of one step: steps=1, not {settings.steps}")
    return Dense(make_method(settings.method), place.layers)
