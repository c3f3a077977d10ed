"""Limits on the unpacked size of archives, against decompression bombs."""

from __future__ import annotations

from pathlib import Path

from odeum.errors import OdeumError
from odeum.models.limits import SWITCH, limits_off, refuse_above

RATIO = 200
"""largest allowed ratio of unpacked to packed bytes; texts reach about 10, decompression bombs 1,000"""
ALWAYS_ALLOWED = 100e6
"""unpacked bytes that are allowed whatever the ratio"""
MEMBERS = 5_000_000
"""largest number of files in an archive"""


class UnpackedSize:
    """Counts unpacked bytes as they are written; raises `OdeumError` above the limit."""

    def __init__(self, *archives: Path) -> None:
        self.archive = archives[0] if archives else Path("an empty data set")
        packed = sum(path.stat().st_size for path in archives)
        self.left = max(ALWAYS_ALLOWED, RATIO * float(packed))

    def take(self, size: int) -> None:
        """Count `size` more bytes."""
        self.left -= size
        if self.left < 0 and not limits_off():
            raise OdeumError(
                f"'{self.archive}' unpacks to more than {RATIO} times its size; to unpack it anyway, set {SWITCH}=off"
            )

    def count(self, members: int) -> None:
        """Check the number of files in an archive."""
        refuse_above(members, MEMBERS, f"'{self.archive}'", f"{members:,} files")
