"""A limit on what archives unpack to: data from elsewhere may be a decompression bomb."""

from __future__ import annotations

from pathlib import Path

from odeum.errors import OdeumError
from odeum.models.limits import SWITCH, limits_off, refuse_above

RATIO = 200
"""how many times larger than its archive the data may be; texts are about ten times, bombs a thousand times"""
ALWAYS_ALLOWED = 100e6
"""bytes that may come out of any archive"""
MEMBERS = 5_000_000
"""most files in an archive"""


class UnpackedSize:
    """Counts the bytes that come out of archives while they are written; raises OdeumError above the limit."""

    def __init__(self, *archives: Path) -> None:
        self.archive = archives[0] if archives else Path("an empty data set")
        packed = sum(path.stat().st_size for path in archives)
        self.left = max(ALWAYS_ALLOWED, RATIO * float(packed))

    def take(self, size: int) -> None:
        """Count `size` more bytes."""
        self.left -= size
        if self.left < 0 and not limits_off():
            raise OdeumError(
                f"'{self.archive}' unpacks to over {RATIO} times its size; if that is right, insist by {SWITCH}=off"
            )

    def count(self, members: int) -> None:
        """Check the number of files in an archive."""
        refuse_above(members, MEMBERS, f"'{self.archive}'", f"{members:,} files")
