"""Linear multistep methods: a step uses values of the field from the layers before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from odeum import register
from odeum.architectures.layered import Layered
from odeum.architectures.stepped import MethodName, Place
from odeum.errors import OdeumError
from odeum.registry.names import Deferred
from odeum.registry.options import Range

if TYPE_CHECKING:
    from odeum.integrators.base import Method

GROUP = "multistep and multi-stream methods"

register.method(
    "adams-bashforth",
    Deferred("odeum.integrators", "AdamsBashforth"),
    about="order 2 with one evaluation per step, from the field values of the current and the previous step",
    reference="Bashforth & Adams 1883",
)
for _order in (3, 4):
    register.method(
        f"adams-bashforth-{_order}",
        Deferred("odeum.integrators", f"adams_bashforth_{_order}"),
        about=f"order {_order} with one evaluation per step, from {_order} field values",
        reference="Bashforth & Adams 1883",
    )
for _order, _name, _make in ((3, "adams-moulton", "AdamsMoulton"), (4, "adams-moulton-4", "adams_moulton_4")):
    register.method(
        _name,
        Deferred("odeum.integrators", _make),
        about=f"predictor–corrector with {_order - 1} field values: order {_order} with two evaluations per step",
        reference="Moulton 1926",
    )
register.method(
    "leapfrog",
    Deferred("odeum.integrators", "Leapfrog"),
    about="two-step midpoint: order 2 with one evaluation per step",
)


@register.architecture(
    "adams-bashforth",
    about="parallel field, Adams–Bashforth steps across layers: order 2 to 4",
    reference="Bashforth & Adams 1883",
    group=GROUP,
)
@dataclass(frozen=True)
class AdamsBashforth(Layered):
    """Steps from the field values of this layer and earlier ones: one evaluation per step."""

    method: MethodName = "adams-bashforth"
    order: Annotated[int, Range(2, 4)] = 2
    """number of field values per step, all but one from earlier layers"""

    def method_for(self, place: Place) -> Method:
        from odeum import integrators

        _check_method(self, "adams-bashforth", "order")
        return integrators.AdamsBashforth(self.order)


@register.architecture(
    "adams-moulton",
    about="parallel field, Adams–Moulton predictor–corrector steps across layers: order 3 or 4",
    reference="Moulton 1926",
    group=GROUP,
)
@dataclass(frozen=True)
class AdamsMoulton(Layered):
    """Predicts a step from the layers before and repeats it with the field at its end."""

    method: MethodName = "adams-moulton"
    order: Annotated[int, Range(3, 4)] = 3
    """number of field values per step, all but two from earlier layers"""

    def method_for(self, place: Place) -> Method:
        from odeum import integrators

        _check_method(self, "adams-moulton", "order")
        return integrators.AdamsMoulton(self.order)


def _check_method(settings: Layered, name: str, option: str) -> None:
    if settings.method != name:
        raise OdeumError(
            f"{name} is a method of its own; use parallel:method={settings.method} for that, without {option}"
        )


register.architecture(
    "leapfrog",
    Layered(method="leapfrog"),
    about="parallel field, leapfrog steps across layers: order 2",
    group=GROUP,
)
