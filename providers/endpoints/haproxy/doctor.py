"""Checks what HAProxy's configuration lacks for our pools, read-only. Called by `HAProxyEndpoints.check` for `reconcile doctor`.

Level and slots are read over the socket. Only the configuration files say whether a reload will read the state file: HAProxy
names them, and they are read if this user may. Otherwise the finding has the lines that they need.
"""

import os
import shlex
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from providers.endpoints.haproxy import commands
from providers.endpoints.haproxy.socket import Session, converse
from providers.endpoints.haproxy.state import AGENT_ENABLED, Slots, Table, table
from providers.endpoints.haproxy.tables import algorithms, parse_servers
from providers.errors import Unreachable

MAX_FILE = 16 * 1024 * 1024
"""Octets of one configuration file that is read."""

MAX_FILES = 1_000
"""Most configuration files that are read."""

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
"""Keywords that begin a section (configuration manual, chapters 3 and 4)."""


class Section(NamedTuple):
    """One section: its keyword and arguments, and the argument lists of its lines."""

    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def last(self, keyword: str) -> tuple[str, ...] | None:
        """The arguments of the last line with this keyword (later ones win); None without."""
        return next((line[1:] for line in reversed(self.lines) if line[0] == keyword), None)


def check_socket(path: str, pools: Sequence[Slots], state: str | None, deadline: float) -> list[str]:
    """What the process behind one socket lacks.

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
        problems = []
        if level.strip() != "admin":
            problems.append(
                f"{where}: has level {level.strip()[:40]!r}; write 'stats socket {path} level admin' in section global"
            )
        try:
            servers, kinds = parse_servers(answer), algorithms(stats)
        except ValueError as error:
            raise Unreachable(where, f"not an answer of HAProxy: {error}") from None
        for slots in pools:
            problems += _slots(where, table(slots, servers, kinds.get(slots.backend, "")))
        return problems + _reload(session, files, pools, state)


def _slots(where: str, pool: Table) -> list[str]:
    slots = pool.slots
    line = f"'{pool.template()}'"
    if not pool.exists:
        return [f"{where}: has no backend {slots.backend!r}; add it with the line {line}"]
    if pool.bare and not pool.ours:
        names = ", ".join(pool.bare[:3])
        return [
            f"{where}: backend {slots.backend}: {names} have names of slots, but would lose their addresses at a reload;"
            f" replace their lines by {line}, or use other slots: {slots.backend}:SLOTS"
        ]
    if not pool.ours:
        others = ", ".join(pool.reserved)
        hint = f" (the existing ones are for {others}; use others: {slots.backend}:SLOTS)" if others else ""
        return [f"{where}: backend {slots.backend} has no slots {slots.prefix}<number>{hint}; add the line {line}"]
    if pool.on_off and not all(server.initial for server in pool.ours):
        return [
            f"{where}: backend {slots.backend}: its algorithm allows only weight 0 and the configured weight, which is 0;"
            f" write {line}, or use balance roundrobin, leastconn or random"
        ]
    agents = [server.name for server in pool.ours if server.agent & AGENT_ENABLED]
    if agents:
        return [
            f"{where}: backend {slots.backend}: {agents[0]} has an agent-check, which also writes weights; remove it there"
        ]
    return []


def _reload(session: Session, files: str, pools: Sequence[Slots], state: str | None) -> list[str]:
    """What keeps a reload from restoring our weights and addresses."""
    where = session.target
    if state is None:
        return [
            f"{where}: a reload loses all weights and addresses until the next look; set the provider's stateFile, and"
            " 'server-state-file <path>' with the same path in section global"
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
            f"{where}: its configuration ({paths[:200] or 'unknown path'}) was not checked: {reason}; it needs {wanted}"
        ]
    problems = []
    if not _same_state_file(sections, state):
        problems.append(f"{where}: does not read the state file; write 'server-state-file {state}' in section global")
    for backend in sorted({slots.backend for slots in pools}):
        if loads_state(sections, backend) is False:
            problems.append(
                f"{where}: backend {backend} ignores the state file; write 'load-server-state-from-file global' in section"
                " defaults"
            )
    return problems


def parse_configuration(texts: Iterable[str]) -> list[Section]:
    """The sections of configuration files, in order; all conditional blocks count as active.

    Raises:
        ValueError: a line has an unclosed quote.
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


def _text(path: Path) -> str:
    """The text of a regular file: HAProxy names it, so it may be any file of this host, also one without an end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is not a regular file")
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise ValueError(f"{path} has more than {MAX_FILE} octets")
    return data.decode("utf-8")


def _texts(paths: str, pid: int) -> list[str]:
    """The configuration files that HAProxy names, separated by semicolons; relative paths start in its own directory."""
    if not paths:
        raise ValueError("HAProxy names no configuration file")
    texts = []
    for name in paths.split(";"):
        path = Path(name) if os.path.isabs(name) else Path(os.readlink(f"/proc/{pid}/cwd"), name)
        parts = sorted(path.glob("*.cfg")) if path.is_dir() else [path]
        texts += [_text(part) for part in parts[:MAX_FILES]]
        if len(texts) > MAX_FILES:
            raise ValueError(f"HAProxy names more than {MAX_FILES} files")
    return texts
