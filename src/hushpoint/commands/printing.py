"""Standard output that may fail: a closed pipe, a full disk."""

from __future__ import annotations

import errno
import os
import sys

_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def is_unprintable(error: OSError) -> bool:
    """Whether an error says that standard output takes no more; one about a file names it."""
    return error.errno in _UNWRITABLE and error.filename is None


def give_up_printing() -> None:
    """Send what is left to print nowhere: the interpreter would fail on it once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
