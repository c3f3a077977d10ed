"""The processes that train together: alone, with a copy of the model each, or with a shard each."""

from odeum.distributed.state import Resumable, collect, restore
from odeum.distributed.world import World, join, pick_device

__all__ = ["Resumable", "World", "collect", "join", "pick_device", "restore"]
