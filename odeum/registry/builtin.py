"""Odeum's own names, registered by the functions that anybody may call; nothing here imports torch."""

from __future__ import annotations

from functools import partial

from odeum import register
from odeum.registry.names import Deferred
from odeum.settings.architecture import Continuous, Evolved, Layered, OdeTransformer, Sandwich
from odeum.settings.looped import LoopedLayers
from odeum.settings.remembering import (
    AttentionResidualLayers,
    AveragedCorrector,
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
from odeum.tableaux import BOSH3, DOPRI5, EULER, HEUN, MIDPOINT, RK4, RK4_38

INTEGRATORS = "odeum.integrators"
TERMS = "odeum.architectures.terms"

method, tableau = register.method, register.tableau
method(
    "lie-trotter", Deferred(INTEGRATORS, "LieTrotter"), about="each term in turn for the whole step: the usual layer"
)
method("strang", Deferred(INTEGRATORS, "Strang"), about="half a step of each term but the last, the last, and back")
method("strang-midpoint", Deferred(INTEGRATORS, "strang_midpoint"), about="Strang over midpoint steps, order 2")
tableau(EULER, about="all terms at once: the parallel layer")
tableau(MIDPOINT)
tableau(HEUN)
tableau(RK4, about="the classical Runge–Kutta, 4 stages, order 4")
tableau(RK4_38, about="the 3/8 rule, 4 stages, order 4: torchdiffeq's rk4")
tableau(BOSH3, about="embedded pair of order 3", from_="Bogacki & Shampine 1989")
tableau(DOPRI5, about="embedded pair of order 5", from_="Dormand & Prince 1980")
method(
    "adams-bashforth",
    Deferred(INTEGRATORS, "AdamsBashforth"),
    about="remembers the step before: order 2 for one evaluation, across layers too",
    from_="Bashforth & Adams 1883",
)
for order in (3, 4):
    method(
        f"adams-bashforth-{order}",
        Deferred(INTEGRATORS, f"adams_bashforth_{order}"),
        about=f"remembers {order - 1} steps: order {order} for one evaluation",
        from_="Bashforth & Adams 1883",
    )
for order in (3, 4):
    method(
        "adams-moulton" if order == 3 else f"adams-moulton-{order}",
        Deferred(INTEGRATORS, "AdamsMoulton" if order == 3 else f"adams_moulton_{order}"),
        about=f"foreseen from {order - 1} values of the field, then corrected: order {order} for two evaluations",
        from_="Moulton 1926",
    )
method("leapfrog", Deferred(INTEGRATORS, "Leapfrog"), about="two-step midpoint, order 2 for one evaluation")
method(
    "implicit-midpoint",
    Deferred(INTEGRATORS, "ImplicitMidpoint"),
    about="the midpoint of the step itself, found by iteration: order 2, stable where the field contracts",
)
method(
    "reversible-heun",
    Deferred(INTEGRATORS, "ReversibleHeun"),
    about="a state and its twin: order 2, can be run backwards",
    from_="Kidger 2021",
)

field = register.field
field("attention", Deferred(TERMS, "attention"), about="self-attention: particles act on each other")
field("feed-forward", Deferred(TERMS, "feed_forward"), about="two linear maps: each particle by itself")

add = partial(register.architecture, group="a step a layer")
add("sequential", Layered(), about="pre-norm transformer, ViT, DeiT: Lie–Trotter splitting")
add("post-norm", Layered(norm="post"), about="the original transformer", from_="Vaswani 2017")
add("parallel", Layered(method="euler"), about="attention and feed-forward side by side: Euler", from_="Zhong 2022")
add("midpoint", Layered(method="midpoint"), about="parallel field, midpoint step")
add("implicit-midpoint", ImplicitLayers(), about="parallel field, the midpoint found by iteration: order 2")
add("rk2", Layered(method="heun"), about="parallel field, Heun step")
add("rk4", Layered(method="rk4"), about="parallel field, classical Runge–Kutta step", from_="Zhong 2022")
add("rk4-38", Layered(method="rk4-38"), about="parallel field, Runge–Kutta 3/8 rule", from_="torchdiffeq's rk4")
add("macaron", Layered(form="macaron"), about="½ feed-forward, attention, ½ feed-forward", from_="Lu 2019")
add("strang", Layered(method="strang"), about="macaron with one feed-forward: Strang splitting")
add("strang-midpoint", Layered(method="strang-midpoint"), about="Strang splitting of true second order")
add("sandwich", Sandwich(), about="attentions first, feed-forwards last", from_="Press 2020")
add("ode-transformer", OdeTransformer(), about="a Runge–Kutta step of whole layers, gated", from_="Li 2022")

add = partial(register.architecture, group="methods that remember")
add(
    "adams-bashforth",
    Multistep(),
    about="parallel field, a step that remembers layers before: order 2 to 4",
    from_="Bashforth & Adams 1883",
)
add(
    "adams-moulton",
    PredictedMultistep(),
    about="parallel field, a step foreseen from layers before and corrected: order 3 or 4",
    from_="Moulton 1926",
)
add("leapfrog", Layered(method="leapfrog"), about="parallel field, from the layer before over this one: order 2")
add("momentum", MomentumLayers(), about="a velocity passes from layer to layer", from_="Sander 2021")
add("yurii", NesterovLayers(), about="Nesterov's steps with a velocity: YuriiFormer", from_="Zimin 2026")
add("dense", DenseLayers(), about="a learned average of all layers so far: DenseFormer", from_="Pagliardini 2024")
add("hyper", HyperLayers(), about="residual streams that layers read, write and mix", from_="Zhu 2024")
add("mhc", ManifoldLayers(), about="hyper-connections, mixed by doubly stochastic matrices", from_="Xie 2025")
add(
    "attention-residuals",
    AttentionResidualLayers(),
    about="each sublayer attends to those before",
    from_="arXiv 2603.15031",
)
add(
    "pcformer",
    AveragedCorrector(),
    about="a Runge–Kutta step of whole layers, corrected by an average of all so far",
    from_="Li 2024",
)

add = partial(register.architecture, group="layers that run backwards")
add(
    "reversible",
    ReversibleLayers(),
    about="layers that are run backwards for the gradient: memory of one",
    from_="Gomez 2017",
)

add = partial(register.architecture, group="depth that loops")
add(
    "looped",
    LoopedLayers(),
    about="a core of layers that act again and again, between prelude and coda",
    from_="Geiping 2025",
)

add = partial(register.architecture, group="continuous depth")
add("continuous", Continuous(), about="one layer integrated over depth by an adaptive solver")
add("transevolve", Evolved(), about="attention measured once a block and evolved", from_="Dutta 2021")
