"""Names of the methods and fields that no single family owns: splittings, Runge–Kutta tableaux, attention."""

from __future__ import annotations

from odeum import register
from odeum.registry.names import Deferred
from odeum.tableaux import BOSH3, DOPRI5, EULER, HEUN, MIDPOINT, RK4, RK4_38

register.method(
    "lie-trotter",
    Deferred("odeum.integrators", "LieTrotter"),
    about="one term after the other, a full step each: the ordinary layer",
)
register.method(
    "strang",
    Deferred("odeum.integrators", "Strang"),
    about="half steps of all terms but the last, a full step of the last, and back",
)
register.method(
    "strang-midpoint", Deferred("odeum.integrators", "strang_midpoint"), about="Strang over midpoint steps, order 2"
)
register.tableau(EULER, about="one step of the sum of all terms: the parallel layer")
register.tableau(MIDPOINT)
register.tableau(HEUN)
register.tableau(RK4, about="the classical Runge–Kutta method, 4 stages, order 4")
register.tableau(RK4_38, about="the 3/8 rule, 4 stages, order 4: torchdiffeq's rk4")
register.tableau(BOSH3, about="embedded pair of order 3", reference="Bogacki & Shampine 1989")
register.tableau(DOPRI5, about="embedded pair of order 5", reference="Dormand & Prince 1980")

register.field(
    "attention",
    Deferred("odeum.architectures.parts.terms", "attention"),
    about="self-attention: particles act on each other",
)
register.field(
    "linear-attention",
    Deferred("odeum.architectures.parts.terms", "linear_attention"),
    about="attention with weights φ(q)·φ(k): linear cost in the length",
    reference="Katharopoulos et al. 2020, arXiv 2006.16236",
)
register.field(
    "synthesizer",
    Deferred("odeum.architectures.parts.terms", "synthesized_attention"),
    about="attention with scores computed from the query alone",
    reference="Tay et al. 2021, arXiv 2005.00743",
)
register.field(
    "feed-forward",
    Deferred("odeum.architectures.parts.terms", "feed_forward"),
    about="two linear maps: each particle by itself",
)
