"""The life of probes, for the log: which began, which ended, and which have other settings than before.

`targets.py` compares every complete set of targets with the one before; the loop passes the changes to the reporter.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from manifests.values.desired import SECOND, Probe, ProbeKind
from providers.facts import Generation
from reconciler.probes.target import Target

COMMAND = 80
"""Characters of a command that are shown."""


class ProbeChange(NamedTuple):
    """One change in the life of a probe. `outcome` is `started`, `ended` or `changed`; `message` has its settings."""

    object: str
    action: str
    outcome: str
    message: str


class _Known(NamedTuple):
    """A running probe: its object, what it is, its target, and its settings as text."""

    object: str
    action: str
    target: Target
    settings: str


class ProbeLog:
    """The changes since they were taken."""

    def __init__(self) -> None:
        self._running: dict[tuple[Generation, str], _Known] = {}
        self._changes: list[ProbeChange] = []

    def compare(self, targets: Iterable[Target], replicas: Mapping[Generation, tuple[str, str]]) -> None:
        """Take over the complete set of targets.

        Args:
            targets: all of them.
            replicas: the key of the replica and the container's name, by generation. Other targets are addresses of names.
        """
        before, self._running = self._running, {}
        for target in targets:
            old = before.pop(target.key, None)
            if old is not None and _same(old.target, target):
                self._running[target.key] = old._replace(target=target)
                continue
            object_, container = replicas.get(target.generation, (target.address.removesuffix("."), ""))
            action = f"{target.name} of {container}" if container else "check"
            known = self._running[target.key] = _Known(object_, action, target, settings(target))
            if old is None:
                self._changes.append(ProbeChange(object_, action, "started", known.settings))
            elif old.settings == known.settings:
                message = f"{known.settings}; other headers, expected answers or authorities than before"
                self._changes.append(ProbeChange(object_, action, "changed", message))
            else:
                message = f"{known.settings}; before: {old.settings}"
                self._changes.append(ProbeChange(object_, action, "changed", message))
        self._changes += [ProbeChange(old.object, old.action, "ended", old.settings) for old in before.values()]

    def take(self) -> list[ProbeChange]:
        """The changes since the last call."""
        taken, self._changes = self._changes, []
        return taken


def _same(before: Target, after: Target) -> bool:
    """Whether both ask the same, and would be logged alike. Values of secrets do not count: they are never shown."""
    return (before.probe, before.address, before.port) == (after.probe, after.address, after.port)


def settings(target: Target) -> str:
    """What a probe asks and how often, without values of headers."""
    probe = target.probe
    times = f"every {_seconds(probe.period)}, timeout {_seconds(probe.timeout)}"
    limits = f"fails after {probe.failure_threshold}, passes after {probe.success_threshold}"
    delay = f", first after {_seconds(probe.initial_delay)}" if probe.initial_delay else ""
    return f"{_request(target, probe)} {times}{delay}, {limits}"


def _request(target: Target, probe: Probe) -> str:
    address = target.address.removesuffix(".")
    place = f"[{address}]:{target.port}" if ":" in address else f"{address}:{target.port}"
    if probe.kind is ProbeKind.EXEC:
        command = " ".join(probe.command)
        return f"exec {command if len(command) <= COMMAND else f'{command[:COMMAND]}...'}"
    if probe.kind is ProbeKind.HTTP:
        return f"GET {probe.scheme.lower()}://{place}{probe.path}"
    return f"{probe.kind.value} {place}{f' {probe.service}' if probe.service else ''}"


def _seconds(duration: int) -> str:
    return f"{duration / SECOND:g}s"
