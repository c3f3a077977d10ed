"""Weights of others: pretrained models (`load`), and the published TransEvolve."""

from odeum.interop.loading import Imported, load, read_pretrained

__all__ = ["Imported", "load", "read_pretrained"]
