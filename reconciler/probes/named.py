"""HTTP probes at a host name: it is resolved for each probe, and passes if any of its addresses does.

All addresses are asked at the same time, within the one deadline of the probe, by the probers for single addresses. Any that is
off limits is not connected to: what a name leads to is only known here. Used by the loop; imported with the first such target.

- One address passes: pass, and the others are let go.
- Else, any was refused: cannot be run. Any is unknown, or there were too many to ask: unknown. All failed: fail.
- A name that is not resolved says nothing about what is behind it: unknown.
"""

import select

from reconciler.probes.http import HttpProber
from reconciler.probes.messages import TLS, Spec
from reconciler.probes.net import IN, Net, sockaddr
from reconciler.probes.off_limits import refusal
from reconciler.probes.resolve import Found, Lookup, Resolver, look_up
from reconciler.probes.slot import IDLE, RESOLVING, RUNNING, Finish, Prober, Slot, printable, spell
from reconciler.probes.streak import CANNOT_RUN, FAIL, PASS, UNKNOWN

_SHOWN = 200
"""Characters of what several addresses say together."""


class _Leg(Slot):
    """One address of a name in one run of its target."""

    __slots__ = ("parent",)

    def __init__(self, parent: Slot, prober: Prober, address: str) -> None:
        super().__init__(parent.more, prober, parent.pool, 0)
        self.parent = parent
        self.rules = parent.rules
        self.more = parent.more
        self.run = 1
        self.sockaddr = sockaddr(address, parent.more.port)


class _Run:
    """One run: its addresses, and what is known of them so far."""

    __slots__ = ("left", "legs", "more", "refused", "said")

    def __init__(self, legs: list[_Leg], refused: str, more: int) -> None:
        self.legs, self.refused, self.more = legs, refused, more
        self.left = len(legs)
        self.said: list[tuple[str, int, str]] = []

    def verdict(self) -> tuple[int, str]:
        """What the addresses say together, once all of them have ended without a pass."""
        said = "; ".join(f"{address}: {detail}" for address, _, detail in sorted(self.said))
        if self.refused:
            return CANNOT_RUN, self.refused
        if self.more:
            return UNKNOWN, printable(f"{self.more} more addresses were not asked; {said}", _SHOWN)
        unknown = any(result != FAIL for _, result, _ in self.said)
        return UNKNOWN if unknown else FAIL, printable(said, _SHOWN)


class _LegNet(Net):
    """Sockets of legs: looked at by the loop like all others, their ends told to the prober below."""

    def __init__(self, epoll: select.epoll, table: dict[int, Slot], main: Net, finish: Finish) -> None:
        super().__init__(epoll, table, finish)
        self._main = main

    def soon(self, slot: Slot) -> None:
        """See `Net.soon`."""
        self._main.soon(slot)


class NamedProber:
    """See `Prober`. `fd` is readable when `resolved` has something to do."""

    def __init__(self, epoll: select.epoll, table: dict[int, Slot], net: Net, lookup: Lookup = look_up) -> None:
        self._finish = net.finish
        self._net = _LegNet(epoll, table, net, self._ended)
        self._http = HttpProber(self._net)
        self._tls: Prober | None = None
        self._resolver: Resolver[tuple[Slot, int]] = Resolver(lookup)
        self.fd = self._resolver.fd
        epoll.register(self.fd, IN)

    def start(self, slot: Slot) -> None:
        """Ask for the addresses."""
        slot.stage = RESOLVING
        slot.extra = None
        self._resolver.ask(slot.more.name, (slot, slot.run))

    def resolved(self) -> None:
        """Go on with those whose addresses are there; who has ended meanwhile does not want them any more."""
        for (slot, run), found in self._resolver.answers():
            if slot.run == run and slot.stage == RESOLVING:
                self._begin(slot, found)

    def _begin(self, slot: Slot, found: Found) -> None:
        spec = slot.more
        if not found.addresses:
            self._finish(slot, UNKNOWN, f"{spec.name} cannot be resolved: {found.problem or 'it has no addresses'}")
            return
        refused, legs = "", []
        prober = self._prober(spec)
        for address in found.addresses:
            reason = refusal(address, spec.allowed)
            if reason:
                refused = refused or f"{spec.name}: {reason}"
                continue
            legs.append(_Leg(slot, prober, address))
        if not legs:
            self._finish(slot, CANNOT_RUN, refused)
            return
        run = slot.extra = _Run(legs, refused, found.more)
        slot.stage = RUNNING
        for leg in legs:
            if slot.extra is run:  # an earlier one may have ended the run
                prober.start(leg)

    def _prober(self, spec: Spec) -> Prober:
        if spec.kind != TLS:
            return self._http
        if self._tls is None:
            from reconciler.probes.stream import StreamProber  # noqa: PLC0415  (loads OpenSSL)

            self._tls = StreamProber(self._net)
        return self._tls

    def _ended(self, leg: Slot, result: int, detail: str) -> None:
        """One address has ended."""
        leg.stage = IDLE
        leg.run += 1
        assert isinstance(leg, _Leg)  # noqa: S101  (this net has no others)
        slot = leg.parent
        run: _Run | None = slot.extra
        if run is None or leg not in run.legs:
            return
        address = str(leg.sockaddr[0])
        run.said.append((address, result, detail))
        run.left -= 1
        if result == PASS:
            self._let_go(slot)
            self._finish(slot, PASS, f"{detail} ({address})")
        elif not run.left:
            slot.extra = None
            self._finish(slot, *run.verdict())

    def _let_go(self, slot: Slot) -> None:
        """End what is left of a run; nobody wants to know how."""
        run: _Run | None = slot.extra
        slot.extra = None
        for leg in run.legs if run is not None else ():
            if leg.stage != IDLE:
                leg.prober.abort(leg)

    def look(self, slot: Slot) -> None:
        """A target has no socket of its own."""

    def event(self, slot: Slot, mask: int) -> None:
        """A target has no socket of its own."""

    def expire(self, slot: Slot) -> None:
        """What has not answered by now has failed; a resolver that has not says nothing."""
        run: _Run | None = slot.extra
        if run is None:
            self._resolver.forget(slot.more.name, (slot, slot.run))
            self._finish(slot, UNKNOWN, f"{slot.more.name} was not resolved within {spell(slot.timeout)}")
            return
        for leg in run.legs:
            if leg.stage != IDLE:
                leg.prober.expire(leg)

    def abort(self, slot: Slot) -> None:
        """The target is gone."""
        if slot.extra is None:
            self._resolver.forget(slot.more.name, (slot, slot.run))
        self._let_go(slot)
        self._finish(slot, UNKNOWN, "")

    def close(self) -> None:
        """Let the resolver's threads end."""
        self._resolver.close()
