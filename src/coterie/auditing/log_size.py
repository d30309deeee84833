"""The size up to which a log is read: logs come from anybody, and a small file can unpack to a very large one."""

from coterie.errors import LogTooLarge

MEGABYTE = 1_000_000
DEFAULT_LIMIT = 250 * MEGABYTE
"""Bytes, unpacked; what an audit needs in memory is at worst a few tens of times as much."""


def check_size(size: int, limit: int, *, at_least: bool = False) -> None:
    """Raise :class:`LogTooLarge` if ``size``, which may be a lower bound, is above ``limit``."""
    if size > limit:
        takes = f"{'at least ' if at_least else ''}{-(-size // MEGABYTE):,} MB"
        raise LogTooLarge(
            f"the log takes {takes} unpacked, and the limit is {limit / MEGABYTE:,.6g} MB; if you know where it comes "
            "from, raise the limit (--limit MB)"
        )
