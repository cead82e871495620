"""HTTP probes at a host name: resolve the name for each probe, probe all its addresses, and pass if one passes.

The probers for single addresses probe them at the same time, within the one deadline of the probe. Addresses off limits are
checked here, because only here they are known. `loop.py` imports this module with the first such target.

- One address passes: pass, and the other connections are dropped.
- Otherwise, an address is off limits: cannot-run. A result is unknown, or the name has too many addresses: unknown. All fail: fail.
- The name cannot be resolved: unknown, because this says nothing about the service behind it.
"""

import select

from reconciler.probes.http import HttpProber
from reconciler.probes.messages import TLS, Spec
from reconciler.probes.net import IN, Net, sockaddr
from reconciler.probes.off_limits import refusal
from reconciler.probes.resolve import Lookup, Resolution, Resolver, look_up
from reconciler.probes.slot import IDLE, RESOLVING, RUNNING, Finish, Prober, Slot, duration_text, printable
from reconciler.probes.streak import CANNOT_RUN, FAIL, PASS, UNKNOWN

_SHOWN = 200
"""Longest detail of several addresses together, in characters."""


class _AddressSlot(Slot):
    """One address of a name in one run of its target, `parent`."""

    __slots__ = ("parent",)

    def __init__(self, parent: Slot, prober: Prober, address: str) -> None:
        super().__init__(parent.spec, prober, parent.pool, 0)
        self.parent = parent
        self.rules = parent.rules
        self.spec = parent.spec
        self.run = 1
        self.sockaddr = sockaddr(address, parent.spec.port)


class _Run:
    """One run: its addresses and their results so far. `refusal` says why an address was not probed, `unprobed` counts those over the limit."""

    __slots__ = ("address_slots", "pending", "refusal", "results", "unprobed")

    def __init__(self, address_slots: list[_AddressSlot], refusal: str, unprobed: int) -> None:
        self.address_slots, self.refusal, self.unprobed = address_slots, refusal, unprobed
        self.pending = len(address_slots)
        self.results: list[tuple[str, int, str]] = []

    def verdict(self) -> tuple[int, str]:
        """The result of the run once all addresses have ended without a pass."""
        details = "; ".join(f"{address}: {detail}" for address, _, detail in sorted(self.results))
        if self.refusal:
            return CANNOT_RUN, self.refusal
        if self.unprobed:
            return UNKNOWN, printable(f"{self.unprobed} more addresses were not probed; {details}", _SHOWN)
        unknown = any(result != FAIL for _, result, _ in self.results)
        return UNKNOWN if unknown else FAIL, printable(details, _SHOWN)


class _AddressNet(Net):
    """Sockets of address slots: the loop watches them like all others, and their results go to `NamedProber`."""

    def __init__(self, epoll: select.epoll, table: dict[int, Slot], main: Net, finish: Finish) -> None:
        super().__init__(epoll, table, finish)
        self._main = main

    def check_next_turn(self, slot: Slot) -> None:
        """See `Net.soon`."""
        self._main.check_next_turn(slot)


class NamedProber:
    """See `Prober`. `fd` is readable when `resolved` has work."""

    def __init__(self, epoll: select.epoll, table: dict[int, Slot], net: Net, lookup: Lookup = look_up) -> None:
        self._finish = net.finish
        self._net = _AddressNet(epoll, table, net, self._address_ended)
        self._http = HttpProber(self._net)
        self._tls: Prober | None = None
        self._resolver: Resolver[tuple[Slot, int]] = Resolver(lookup)
        self.fd = self._resolver.fd
        epoll.register(self.fd, IN)

    def start(self, slot: Slot) -> None:
        """Ask the resolver for the addresses."""
        slot.stage = RESOLVING
        slot.extra = None
        self._resolver.ask(slot.spec.name, (slot, slot.run))

    def resolved(self) -> None:
        """Begin to probe the resolved addresses of runs that have not ended meanwhile."""
        for (slot, run), resolution in self._resolver.answers():
            if slot.run == run and slot.stage == RESOLVING:
                self._begin(slot, resolution)

    def _begin(self, slot: Slot, resolution: Resolution) -> None:
        spec = slot.spec
        if not resolution.addresses:
            problem = resolution.problem or "it has no addresses"
            self._finish(slot, UNKNOWN, f"{spec.name} cannot be resolved: {problem}")
            return
        first_refusal, address_slots = "", []
        prober = self._prober(spec)
        for address in resolution.addresses:
            reason = refusal(address, spec.allowed or ())
            if reason:
                first_refusal = first_refusal or f"{spec.name}: {reason}"
                continue
            address_slots.append(_AddressSlot(slot, prober, address))
        if not address_slots:
            self._finish(slot, CANNOT_RUN, first_refusal)
            return
        run = slot.extra = _Run(address_slots, first_refusal, resolution.unprobed)
        slot.stage = RUNNING
        for address_slot in address_slots:
            if slot.extra is run:  # an earlier address may have ended the run
                prober.start(address_slot)

    def _prober(self, spec: Spec) -> Prober:
        if spec.kind != TLS:
            return self._http
        if self._tls is None:
            from reconciler.probes.stream import StreamProber  # noqa: PLC0415  (loads OpenSSL)

            self._tls = StreamProber(self._net)
        return self._tls

    def _address_ended(self, address_slot: Slot, result: int, detail: str) -> None:
        """Count the result of one address."""
        address_slot.stage = IDLE
        address_slot.run += 1
        assert isinstance(address_slot, _AddressSlot)  # noqa: S101  (this net has no other slots)
        slot = address_slot.parent
        run: _Run | None = slot.extra
        if run is None or address_slot not in run.address_slots:
            return
        address = str(address_slot.sockaddr[0])
        run.results.append((address, result, detail))
        run.pending -= 1
        if result == PASS:
            self._abort_rest(slot)
            self._finish(slot, PASS, f"{detail} ({address})")
        elif not run.pending:
            slot.extra = None
            self._finish(slot, *run.verdict())

    def _abort_rest(self, slot: Slot) -> None:
        """Drop the remaining connections of a run without counting them."""
        run: _Run | None = slot.extra
        slot.extra = None
        for address_slot in run.address_slots if run is not None else ():
            if address_slot.stage != IDLE:
                address_slot.prober.abort(address_slot)

    def check(self, slot: Slot) -> None:
        """Never called: a target has no socket of its own."""

    def event(self, slot: Slot, mask: int) -> None:
        """Never called: a target has no socket of its own."""

    def expire(self, slot: Slot) -> None:
        """End the run: addresses without an answer fail, a name without an address is unknown."""
        run: _Run | None = slot.extra
        if run is None:
            self._resolver.forget(slot.spec.name, (slot, slot.run))
            self._finish(slot, UNKNOWN, f"{slot.spec.name} was not resolved within {duration_text(slot.timeout)}")
            return
        for address_slot in run.address_slots:
            if address_slot.stage != IDLE:
                address_slot.prober.expire(address_slot)

    def abort(self, slot: Slot) -> None:
        """Drop the connections of a removed target."""
        if slot.extra is None:
            self._resolver.forget(slot.spec.name, (slot, slot.run))
        self._abort_rest(slot)
        self._finish(slot, UNKNOWN, "")

    def close(self) -> None:
        """Let the resolver's threads end."""
        self._resolver.close()
