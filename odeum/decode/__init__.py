"""From a trained model to text: cached greedy search, sampling and beam search."""

from odeum.decode.beam import beam_search, greedy
from odeum.decode.generate import generate, stream
from odeum.decode.sampling import sample

__all__ = ["beam_search", "generate", "greedy", "sample", "stream"]
