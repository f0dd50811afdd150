"""The socket of a server, taken before anything heavy is imported: a port that is taken is told at once."""

import os
import socket
from ipaddress import ip_address


def listen(host: str, port: int) -> socket.socket:
    """Take a port, 0 for a free one.

    Raises:
        ValueError: it is taken, or there is no such host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        code = error.errno or 0  # a negative one is of a name that is not found
        reason = (os.strerror(code) if code > 0 else str(error.strerror)).lower()
        remedy = "take another --port, 0 for a free one" if port else "take another --host"
        raise ValueError(f"{host}:{port}: {reason}: {remedy}") from None


def is_local(host: str) -> bool:
    """Tell if a host is this machine, reached by no other."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
