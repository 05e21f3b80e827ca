"""Whether a Ray cluster answers at an address: Ray itself tries for minutes before it says no."""

import os
import socket

_PATIENCE_SECONDS = 3.0
# What gRPC opens with, and an empty frame of settings; a server answers with its own settings.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS_FRAME, _FRAME_KIND = 4, 3


def check_address(address: str) -> None:
    """Refuse an address at which no Ray cluster answers within seconds.

    >>> check_address("somewhere")
    Traceback (most recent call last):
    ValueError: the address of a Ray cluster is that of its head, host:port as in 10.0.0.1:6379, got 'somewhere'
    """
    if address == "auto":  # Ray looks on this machine, and knows at once
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ValueError(
            f"the address of a Ray cluster is that of its head, host:port as in 10.0.0.1:6379, got {address!r}"
        )
    try:
        with socket.create_connection((host, int(port)), _PATIENCE_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                connection.settimeout(_PATIENCE_SECONDS)
                connection.sendall(_GREETING)
                answer = connection.recv(9)
                if len(answer) <= _FRAME_KIND or answer[_FRAME_KIND] != _SETTINGS_FRAME:
                    raise ConnectionError("what answers there is not Ray")
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"no Ray cluster answers at {address} ({error}); `ray start --head` prints the address when it starts one"
        ) from error
