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
    about="uses the field of the step before: order 2 for one evaluation, across layers too",
    reference="Bashforth & Adams 1883",
)
for _order in (3, 4):
    register.method(
        f"adams-bashforth-{_order}",
        Deferred("odeum.integrators", f"adams_bashforth_{_order}"),
        about=f"uses the field of {_order - 1} steps before: order {_order} for one evaluation",
        reference="Bashforth & Adams 1883",
    )
for _order, _name, _make in ((3, "adams-moulton", "AdamsMoulton"), (4, "adams-moulton-4", "adams_moulton_4")):
    register.method(
        _name,
        Deferred("odeum.integrators", _make),
        about=f"predicted from {_order - 1} values of the field, then corrected: order {_order} for two evaluations",
        reference="Moulton 1926",
    )
register.method(
    "leapfrog", Deferred("odeum.integrators", "Leapfrog"), about="two-step midpoint, order 2 for one evaluation"
)


@register.architecture(
    "adams-bashforth",
    about="parallel field, a step that uses the field at layers before: order 2 to 4",
    reference="Bashforth & Adams 1883",
    group=GROUP,
)
@dataclass(frozen=True)
class AdamsBashforth(Layered):
    """Steps by the field now and at the layers before: one evaluation per step."""

    method: MethodName = "adams-bashforth"
    order: Annotated[int, Range(2, 4)] = 2
    """number of values of the field per step, all but one from layers before"""

    def method_for(self, place: Place) -> Method:
        from odeum import integrators

        _check_method(self, "adams-bashforth", "order")
        return integrators.AdamsBashforth(self.order)


@register.architecture(
    "adams-moulton",
    about="parallel field, a step predicted from layers before and corrected: order 3 or 4",
    reference="Moulton 1926",
    group=GROUP,
)
@dataclass(frozen=True)
class AdamsMoulton(Layered):
    """Predicts a step from the layers before and repeats it with the field at its end."""

    method: MethodName = "adams-moulton"
    order: Annotated[int, Range(3, 4)] = 3
    """number of values of the field per step, all but two from layers before"""

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
    about="parallel field, from the layer before over this one: order 2",
    group=GROUP,
)
