"""The ports of a container that the host publishes, and where others reach them. Pure.

`inspection.py` reads the mappings, `fact.py` turns them into facts.
"""

from collections.abc import Mapping
from typing import Any

from providers.facts import PortFact


def read_bindings(inspection: Mapping[str, Any]) -> tuple[tuple[int, str, int], ...]:
    """(container port, host address, host port) of every mapping in force, sorted. TCP goes before other protocols."""
    ports = (inspection.get("NetworkSettings") or {}).get("Ports") or {}
    by_protocol: dict[str, set[tuple[int, str, int]]] = {}
    for port, bindings in ports.items():
        number, _, protocol = str(port).partition("/")
        for binding in bindings or ():
            host = str(binding.get("HostPort") or "")
            if number.isdecimal() and host.isdecimal() and int(host):
                by_protocol.setdefault(protocol or "tcp", set()).add(
                    (int(number), str(binding.get("HostIp") or ""), int(host))
                )
    tcp = by_protocol.pop("tcp", set())
    tcp_ports = {binding[0] for binding in tcp}
    others = {binding for group in by_protocol.values() for binding in group if binding[0] not in tcp_ports}
    return tuple(sorted(tcp | others))


def host_network_bindings(exposed: Mapping[str, Any]) -> tuple[tuple[int, str, int], ...]:
    """The mappings of a container in the host's own network: each exposed port is the host's."""
    numbers = {int(port.partition("/")[0]) for port in exposed if port.partition("/")[0].isdecimal()}
    return tuple((number, "", number) for number in sorted(numbers))


def published(bindings: tuple[tuple[int, str, int], ...], address: str) -> tuple[PortFact, ...]:
    """Where these mappings are reached.

    Args:
        bindings: as `read_bindings` gives them.
        address: the address under which others reach the host; empty = none, then a port on all addresses is reached by loopback.
    """
    return tuple(
        dict.fromkeys(
            PortFact(number, reached_at, port)
            for number, host, port in bindings
            if (reached_at := _reached_at(host, address, alone=not _has_ipv4(bindings, number, port)))
        )
    )


def _has_ipv4(bindings: tuple[tuple[int, str, int], ...], number: int, port: int) -> bool:
    return any(binding[0] == number and binding[2] == port and binding[1] in ("", "0.0.0.0") for binding in bindings)  # noqa: S104


def _reached_at(host: str, address: str, *, alone: bool) -> str:
    """The address under which one mapping is reached; empty when there is none. `alone`: it does not listen on IPv4."""
    if host in ("", "0.0.0.0"):  # noqa: S104  (the engine reports it; this program does not listen there)
        return "127.0.0.1" if not address else "" if ":" in address else address
    if host != "::":
        return host
    if not address:
        return "::1" if alone else ""
    return address if ":" in address else ""
