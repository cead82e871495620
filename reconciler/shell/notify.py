"""sd_notify: informs systemd that the daemon is ready, works, or stops. Called by `wire.py` and the heart-beat.

The protocol is that of sd_notify(3): one datagram with `NAME=VALUE` lines to the unix socket of NOTIFY_SOCKET.
"""

import os
import socket
from contextlib import suppress


class ServiceManager:
    """The service manager at a socket address; an empty address is none."""

    def __init__(self, address: str) -> None:
        # A leading @ is the abstract namespace, see unix(7). Other families, such as vsock, are not of services on this host.
        self._address = "\0" + address[1:] if address.startswith("@") else address if address.startswith("/") else ""

    @property
    def listens(self) -> bool:
        """Whether there is one."""
        return bool(self._address)

    def notify(self, *lines: str) -> bool:
        """Send these lines. False without a service manager, or when it does not take them: a report must not end a run."""
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.connect(self._address)
            sender.send("\n".join(lines).encode())
            return True
        return False


def from_environment() -> ServiceManager:
    """The service manager that started this process. Removes its variables, so that replicas and probes do not inherit them."""
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        os.environ.pop(name, None)
    return ServiceManager(os.environ.pop("NOTIFY_SOCKET", ""))
