"""Limits on the size of logs. Logs are untrusted, and a small file can unpack to a very large one."""

from coterie.errors import LogTooLarge, Remedy

MEGABYTE = 1_000_000
DEFAULT_LIMIT = 250 * MEGABYTE
"""Bytes, unpacked."""
MEMORY = 8
"""Reading a log may use this many times the limit in memory, as far as that is known in advance."""

_RAISE = ("; if you know where it comes from, raise the limit (", Remedy("limit"), ")")


def check_size(size: int, limit: int, *, at_least: bool = False) -> None:
    """Raise :class:`LogTooLarge` if ``size`` is above ``limit``. ``size`` may be a lower bound."""
    if size > limit:
        takes = f"{'at least ' if at_least else ''}{-(-size // MEGABYTE):,} MB"
        raise LogTooLarge(f"the file takes {takes} unpacked, and the limit is {limit / MEGABYTE:,.6g} MB", *_RAISE)


def check_memory(size: int, limit: int) -> None:
    """Raise :class:`LogTooLarge` if the content takes ``size`` bytes of memory and that is too much for ``limit``."""
    if size > MEMORY * limit:
        most = f"{MEMORY} times the limit of {limit / MEGABYTE:,.6g} MB"
        raise LogTooLarge(f"reading the file takes more memory than {most}", *_RAISE)
