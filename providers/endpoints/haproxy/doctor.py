"""What HAProxy's configuration lacks for our pools: read-only, for people who set it up. Called by `HAProxyEndpoints.check`.

Rights and slots are asked over the socket. Whether a reload will read the state file is only in the configuration files:
HAProxy tells their names, and they are read when this user may; else the lines that must be there are said.
"""

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from providers.endpoints.haproxy import commands
from providers.endpoints.haproxy.socket import Session, converse
from providers.endpoints.haproxy.state import AGENT_ENABLED, Slots, Table, table
from providers.endpoints.haproxy.tables import algorithms, parse_servers
from providers.errors import Unreachable

SECTIONS = frozenset(
    (
        "global",
        "defaults",
        "frontend",
        "backend",
        "listen",
        "peers",
        "resolvers",
        "mailers",
        "userlist",
        "cache",
        "program",
        "ring",
        "http-errors",
        "fcgi-app",
        "log-forward",
        "crt-store",
        "traces",
    )
)
"""Keywords that begin a section (configuration manual, chapter 3 and 4)."""


class Section(NamedTuple):
    """One section: its keyword and arguments, and the argument lists of its lines."""

    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def last(self, keyword: str) -> tuple[str, ...] | None:
        """The arguments of the last line with this keyword (later ones win); None without."""
        return next((line[1:] for line in reversed(self.lines) if line[0] == keyword), None)


def check_socket(path: str, pools: Sequence[Slots], state: str | None, deadline: float) -> list[str]:
    """What is missing behind one socket.

    Raises:
        Unreachable: it does not answer.
    """
    questions = [
        commands.SHOW_LEVEL,
        commands.SHOW_ALL_SERVERS,
        commands.SHOW_CONFIGURATION_FILES,
        commands.SHOW_ALGORITHMS,
    ]
    session, (level, answer, files, stats) = converse(path, deadline, questions)
    with session:
        where = session.target
        found = []
        if level.strip() != "admin":
            found.append(
                f"{where}: has level {level.strip()[:40]!r}; in section global: 'stats socket {path} level admin'"
            )
        try:
            servers, kinds = parse_servers(answer), algorithms(stats)
        except ValueError as error:
            raise Unreachable(where, f"does not answer like HAProxy: {error}") from None
        for slots in pools:
            found += _slots(where, table(slots, servers, kinds.get(slots.backend, "")))
        return found + _reload(session, files, pools, state)


def _slots(where: str, found: Table) -> list[str]:
    slots = found.slots
    line = f"'{found.template()}'"
    if not found.exists:
        return [f"{where}: has no backend {slots.backend!r}; add it with the line {line}"]
    if found.bare and not found.ours:
        names = ", ".join(found.bare[:3])
        return [
            f"{where}: backend {slots.backend}: {names} have the names of slots, but would lose their addresses at a reload;"
            f" replace their lines by {line}, or name other slots: {slots.backend}:SLOTS"
        ]
    if not found.ours:
        others = ", ".join(found.reserved)
        hint = f" (those there are for {others}; name others: {slots.backend}:SLOTS)" if others else ""
        return [f"{where}: backend {slots.backend} has no slots {slots.prefix}<number>{hint}; add the line {line}"]
    if found.on_off and not all(server.initial for server in found.ours):
        return [
            f"{where}: backend {slots.backend}: its algorithm takes only weight 0 and the configured one, which is 0 here;"
            f" write {line}, or use balance roundrobin, leastconn or random"
        ]
    agents = [server.name for server in found.ours if server.agent & AGENT_ENABLED]
    if agents:
        return [
            f"{where}: backend {slots.backend}: {agents[0]} has an agent-check, which writes weights too; remove it there"
        ]
    return []


def _reload(session: Session, files: str, pools: Sequence[Slots], state: str | None) -> list[str]:
    """Whether a reload keeps what we wrote."""
    where = session.target
    if state is None:
        return [
            f"{where}: a reload forgets all weights and addresses until the next look; set stateFile of the provider,"
            " with the same path in section global: 'server-state-file <path>'"
        ]
    paths = files.strip().removeprefix("HAPROXY_CFGFILES=")
    wanted = (
        f"'server-state-file {state}' in section global, and 'load-server-state-from-file global' in section defaults"
    )
    try:
        sections = parse_configuration(_texts(paths, session.info.pid))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "cannot be read"
        return [
            f"{where}: its configuration ({paths[:200] or 'not told'}) was not checked: {reason}; it needs {wanted}"
        ]
    found = []
    if not _same_state_file(sections, state):
        found.append(f"{where}: does not read the state file; in section global: 'server-state-file {state}'")
    for backend in sorted({slots.backend for slots in pools}):
        if loads_state(sections, backend) is False:
            found.append(
                f"{where}: backend {backend} ignores the state file; in section defaults:"
                " 'load-server-state-from-file global'"
            )
    return found


def parse_configuration(texts: Iterable[str]) -> list[Section]:
    """The sections of configuration files, in order; conditional blocks are taken as if all of them were active.

    Raises:
        ValueError: a line has a quote that is not closed.
    """
    sections: list[tuple[tuple[str, ...], list[tuple[str, ...]]]] = []
    for text in texts:
        for line in text.splitlines():
            words = tuple(shlex.split(line, comments=True))
            if not words or words[0].startswith("."):
                continue
            if words[0] in SECTIONS:
                sections.append((words, []))
            elif sections:
                sections[-1][1].append(words)
    return [Section(head, tuple(lines)) for head, lines in sections]


def loads_state(sections: Sequence[Section], backend: str) -> bool | None:
    """Whether this backend reads the global state file; None when the backend is not in these sections."""
    defaults: Section | None = None
    named: dict[str, Section] = {}
    for section in sections:
        kind, *names = section.head
        if kind == "defaults":
            defaults = section
            if names:
                named[names[0]] = section
        if kind not in ("backend", "listen") or names[:1] != [backend]:
            continue
        source = named.get(names[2]) if len(names) > 2 and names[1] == "from" else defaults
        own = section.last("load-server-state-from-file")
        inherited = source.last("load-server-state-from-file") if source else None
        return (own or inherited) == ("global",)
    return None


def _same_state_file(sections: Sequence[Section], state: str) -> bool:
    settings: dict[str, str] = {}
    for section in sections:
        if section.head[0] == "global":
            for keyword in ("server-state-file", "server-state-base"):
                value = section.last(keyword)
                if value:
                    settings[keyword] = value[0]
    name = settings.get("server-state-file")
    if name is None:
        return False
    return os.path.normpath(os.path.join(settings.get("server-state-base", ""), name)) == os.path.normpath(state)


def _texts(paths: str, pid: int) -> list[str]:
    """The configuration files that HAProxy names, separated by semicolons; relative ones from its own directory."""
    if not paths:
        raise ValueError("HAProxy names no configuration file")
    found = []
    for name in paths.split(";"):
        path = Path(name) if os.path.isabs(name) else Path(os.readlink(f"/proc/{pid}/cwd"), name)
        parts = sorted(path.glob("*.cfg")) if path.is_dir() else [path]
        found += [part.read_text(encoding="utf-8") for part in parts]
    return found
