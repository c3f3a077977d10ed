"""Architectures: one file per family with its options, construction, names and references.

The files are written as a plugin is, and import no torch before something is built. Every file here is imported when
Odeum is, so a new one needs no other line; what several of them share and needs torch lies in `parts`.
"""

from importlib import import_module
from pkgutil import iter_modules

from odeum.architectures import methods  # first: the options of architectures name them
from odeum.architectures.build import make_stack, stack

__all__ = ["make_stack", "methods", "stack"]

for _module in iter_modules(__path__):
    if not _module.ispkg:
        import_module(f"{__name__}.{_module.name}")
