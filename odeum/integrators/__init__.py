"""Integrators: methods make one step, solvers cross an interval, gradients differentiate it."""

from odeum.integrators.adams_moulton import AdamsMoulton, adams_moulton_4
from odeum.integrators.adaptive import Adaptive
from odeum.integrators.base import Method, Solver, get_carry, within_evaluation, within_step
from odeum.integrators.dense import Dense
from odeum.integrators.fixed import FixedSteps
from odeum.integrators.gradients import Adjoint, Checkpointed
from odeum.integrators.implicit import ImplicitMidpoint
from odeum.integrators.mixes import Gated, Learned, Mix
from odeum.integrators.momentum import Momentum
from odeum.integrators.multistep import AdamsBashforth, Leapfrog, adams_bashforth_3, adams_bashforth_4
from odeum.integrators.nesterov import Nesterov
from odeum.integrators.per_sample import AdaptivePerSample
from odeum.integrators.reversible import Coupled, ReversibleHeun, RevNet
from odeum.integrators.reversing import Reversible
from odeum.integrators.runge_kutta import RungeKutta
from odeum.integrators.splitting import LieTrotter, Strang, strang_midpoint
from odeum.tableaux import BOSH3, DOPRI5, EULER, HEUN, MIDPOINT, RK4, RK4_38, Tableau

__all__ = [
    "BOSH3",
    "DOPRI5",
    "EULER",
    "HEUN",
    "MIDPOINT",
    "RK4",
    "RK4_38",
    "AdamsBashforth",
    "AdamsMoulton",
    "Adaptive",
    "AdaptivePerSample",
    "Adjoint",
    "Checkpointed",
    "Coupled",
    "Dense",
    "FixedSteps",
    "Gated",
    "ImplicitMidpoint",
    "Leapfrog",
    "Learned",
    "LieTrotter",
    "Method",
    "Mix",
    "Momentum",
    "Nesterov",
    "RevNet",
    "Reversible",
    "ReversibleHeun",
    "RungeKutta",
    "Solver",
    "Strang",
    "Tableau",
    "adams_bashforth_3",
    "adams_bashforth_4",
    "adams_moulton_4",
    "get_carry",
    "strang_midpoint",
    "within_evaluation",
    "within_step",
]
