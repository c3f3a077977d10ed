"""From names to objects: the one room where an architecture becomes fields, integrators and a schedule.

A file a family; each registers the builder of its dataclass, so importing the room makes all of them known.
"""

from odeum.architectures import continuous, evolved, layered, looped, mixed, ode_transformer, remembering, sandwich
from odeum.architectures.builders import make_stack, stack
from odeum.architectures.norms import make_norm, place_norms
from odeum.architectures.shapes import check_shape
from odeum.architectures.solvers import make_method, tableaux
from odeum.architectures.terms import terms

__all__ = ["check_shape", "make_method", "make_norm", "make_stack", "place_norms", "stack", "tableaux", "terms"]

FAMILIES = (continuous, evolved, layered, looped, mixed, ode_transformer, remembering, sandwich)
