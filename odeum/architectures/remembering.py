"""Layers whose methods remember: from their options to the method of each layer."""

from __future__ import annotations

from odeum.architectures.solvers import Place, make_step
from odeum.errors import OdeumError
from odeum.integrators import AdamsBashforth, Method
from odeum.settings.remembering import Multistep


@make_step.register(Multistep)
def multistep(settings: Multistep, place: Place) -> Method:
    """Adams–Bashforth of the order asked for."""
    if settings.method != "adams-bashforth":
        raise OdeumError(
            f"adams-bashforth is a method of its own; use parallel:method={settings.method} for that, without order"
        )
    return AdamsBashforth(settings.order)
