"""What a test registers is gone after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from odeum.lab.tasks import DATA_SETS
from odeum.models.settings import PRESETS
from odeum.registry.plugins import REGISTRIES


@contextmanager
def kept_registries() -> Iterator[None]:
    """All names as they were, once the block is left."""
    tables = [*(registry.entries for registry in REGISTRIES), DATA_SETS, PRESETS]
    before = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, entries in zip(tables, before, strict=True):
            table.clear()
            table.update(entries)
