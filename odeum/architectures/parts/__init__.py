"""The parts that architectures are built from: terms, norms, methods, solvers and weights that depend on time."""

from odeum.architectures.parts.norms import depth_rates, make_norm, place_norms
from odeum.architectures.parts.over_time import check_options, field_over_time
from odeum.architectures.parts.solvers import fixed_solver, make_method, per_term, tableau, tableaux, with_gradient
from odeum.architectures.parts.terms import (
    attentions,
    cross_attention,
    feed_forward,
    halved,
    innermost,
    is_feed_forward,
    is_self_attention,
    make_field,
    terms,
    whole_layer,
)

__all__ = [
    "attentions",
    "check_options",
    "cross_attention",
    "depth_rates",
    "feed_forward",
    "field_over_time",
    "fixed_solver",
    "halved",
    "innermost",
    "is_feed_forward",
    "is_self_attention",
    "make_field",
    "make_method",
    "make_norm",
    "per_term",
    "place_norms",
    "tableau",
    "tableaux",
    "terms",
    "whole_layer",
    "with_gradient",
]
