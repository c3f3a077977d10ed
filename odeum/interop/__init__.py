"""Import of pretrained models (`load`) and of the published TransEvolve; exports to other formats."""

from odeum.interop.loading import Imported, load, read_pretrained

__all__ = ["Imported", "load", "read_pretrained"]
