"""Which methods go with which gradients, solvers, memory and shared weights: the whole table, accepted or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odeum import Shape, set_steps
from odeum.architectures import stack
from odeum.errors import OdeumError
from odeum.integrators import Adjoint, Checkpointed, FixedSteps, Leapfrog, LieTrotter, Reversible
from odeum.integrators.capabilities import REFUSED, TRAITS, check
from odeum.integrators.energy import kinetic_energy
from odeum.registry.names import METHODS

SHAPE = Shape(width=8, heads=2, depth=2, hidden=16)
TABLE = """
                                       backprop checkpointed adjoint reversible
parallel:method=lie-trotter              beswil   beswil   -        -
parallel:method=strang                   beswil   beswil   -        -
parallel:method=strang-midpoint          beswil   beswil   -        -
parallel:method=euler                    beswil   beswil   bswil    -
parallel:method=midpoint                 beswil   beswil   bswil    -
parallel:method=heun                     beswil   beswil   bswil    -
parallel:method=rk4                      beswil   beswil   bswil    -
parallel:method=rk4-38                   beswil   beswil   bswil    -
parallel:method=bosh3                    beswil   beswil   bswil    -
parallel:method=dopri5                   beswil   beswil   bswil    -
parallel:method=implicit-midpoint        beswil   beswil   bswil    -
parallel:method=adams-bashforth          beswi    beswi    -        -
parallel:method=adams-bashforth-3        beswi    beswi    -        -
parallel:method=adams-bashforth-4        beswi    beswi    -        -
parallel:method=adams-moulton            beswi    beswi    -        -
parallel:method=adams-moulton-4          beswi    beswi    -        -
parallel:method=leapfrog                 beswi    beswi    -        bswi
parallel:method=reversible-heun          beswi    beswi    -        bswi
momentum                                 beswi    beswi    -        bswi
momentum:gamma=0                         beswi    beswi    -        -
momentum:method=euler                    beswi    beswi    -        bswi
yurii                                    bei      bei      -        -
dense                                    bei      bei      -        -
hyper                                    besi     besi     -        -
hyper:method=euler                       besi     besi     -        -
hyper:mixing=identity                    besi     besi     -        -
two-lanes                                besi     besi     -        -
residual-scalars                         besi     besi     -        -
residual-scalars:stream=0.9,input=0.1    beswi    beswi    -        -
late-looping                             besi     besi     -        -
value-residual                           besi     besi     -        -
value-residual:source=input,method=rk4   besi     besi     -        -
moda                                     besi     besi     -        -
mudd                                     bei      bei      -        -
mudd:method=euler                        bei      bei      -        -
keel                                     besi     besi     -        -
keel:method=rk4                          besi     besi     -        -
ngpt                                     besi     besi     -        -
lagged-attention                         beswi    beswi    -        -
lagged-attention:method=euler            beswi    beswi    -        -
mhc                                      besi     besi     -        -
attention-residuals                      besi     besi     -        -
pcformer                                 bei      bei      -        -
ode-transformer                          besi     besi     -        -
ode-transformer:coefficients=learned     besi     besi     -        -
ode-transformer:coefficients=fixed       besi     besi     bsi      -
reversible                               beswi    beswi    -        bswi
reversible:scheme=heun                   beswi    beswi    -        bswi
reversible:scheme=momentum               beswi    beswi    -        bswi
reversible:scheme=coupling,method=rk4    beswi    beswi    -        bswi
sandwich                                 bes      bes      bs       -
transevolve                              besi     besi     -        -
continuous                               bew      bew      bw       -
continuous:adapt=sample                  be       be       -        -
"""
"""For each gradient: b can be built, e its kinetic energy can be measured, s it can be given more steps, w its weights
may depend on time, i layers may share weights, l its method may stand in a loop with injection; - nothing of it."""
ROWS = [(words[0], words[1:]) for line in TABLE.strip().splitlines()[1:] if (words := line.split())]
GRADIENTS = TABLE.split()[:4]


def works(act: Callable[[], Any]) -> bool:
    try:
        act()
    except OdeumError:
        return False
    return True


def measured(model: Any) -> None:
    with kinetic_energy(model):
        pass


def letters(spelling: str, gradient: str) -> str:
    spelling += f"{',' if ':' in spelling else ':'}gradient={gradient}"
    if not works(lambda: stack(spelling, SHAPE)):
        return "-"
    model = stack(spelling, SHAPE)
    name, _, options = spelling.partition(":")
    uses: dict[str, Callable[[], Any]] = {
        "e": lambda: measured(model),
        "s": lambda: set_steps(model, 2),
        "w": lambda: stack(f"{spelling},weights=knots,between=linear", SHAPE),
        "i": lambda: stack(f"{spelling},independent=1", SHAPE),
    }
    if name == "parallel":
        uses["l"] = lambda: stack(f"looped:{options}", SHAPE)
    return "b" + "".join(letter for letter, act in uses.items() if works(act))


@pytest.mark.parametrize(("spelling", "expected"), ROWS, ids=[name for name, _ in ROWS])
def test_what_goes_with_what(spelling: str, expected: list[str]) -> None:
    assert [letters(spelling, gradient) for gradient in GRADIENTS] == expected


def test_the_table_has_every_built_in_method() -> None:
    builtin = {name for name, entry in METHODS.entries.items() if entry.module.startswith("odeum.")}
    assert builtin == {name.partition("method=")[2] for name, _ in ROWS if name.startswith("parallel:")}


def test_each_use_refuses_by_a_trait_that_is_declared() -> None:
    assert {refused.trait for rows in REFUSED.values() for refused in rows} == set(TRAITS)


def test_one_form_of_message() -> None:
    with pytest.raises(OdeumError) as error:
        check("gradient=adjoint", FixedSteps(LieTrotter()))
    assert str(error.value) == (
        "gradient=adjoint cannot be combined with lie-trotter: it integrates the whole field backwards, a "
        "splitting does not; use gradient=checkpointed"
    )


@pytest.mark.parametrize("inner", [Adjoint, Reversible])
def test_kinds_of_gradient_do_not_nest(inner: Any) -> None:
    solver = Checkpointed(inner(FixedSteps(Leapfrog())))
    with pytest.raises(
        OdeumError, match="gradient=checkpointed cannot be combined with leapfrog: it recomputes from states"
    ):
        check("gradient=checkpointed", solver)
