"""The kernel's buffers between this process and redis-cli."""

from __future__ import annotations

import array
import fcntl
import socket
import termios
from contextlib import suppress

__all__ = ["BUFFER_BYTES", "enlarge_pipe", "unread"]

# The requested buffer size. By default, Linux grants at most 416 KiB for a socket (twice
# net.core.wmem_max) and 1 MiB for a pipe (fs.pipe-max-size).
BUFFER_BYTES = 1 << 20


def enlarge_pipe(fd: int) -> None:
    """Enlarge a pipe for redis-cli's output beyond 64 KiB, if the system allows it."""
    with suppress(AttributeError, OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, BUFFER_BYTES)


def unread(end: socket.socket) -> int:
    """Return the number of bytes that the other end of a socket has not read; 0 if unknown.

    The number includes the kernel's overhead.
    """
    count = array.array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(end, termios.TIOCOUTQ, count)
    return count[0]
