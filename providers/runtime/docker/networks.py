"""The networks that a container of ours was created for, and those of them that it is not connected to. Pure.

An engine goes on running a container that somebody disconnects (`docker network disconnect`): nobody reaches it any more, and
a restart does not bring the network back. Called by `docker_life.py` and `docker_act.py`.
"""

import re
from collections.abc import Mapping
from typing import Any

_NO_NETWORK = frozenset({"host", "none"})

_ID = re.compile(r"[0-9a-f]{12,64}")
"""A network may be asked for by its id, or the beginning of it; an inspection tells names, with the ids beside them."""


def first_of(mode: str) -> str:
    """The first network of a container, from its network mode, in Docker's words: `bridge` is that of one that asked for none."""
    return "bridge" if mode in ("", "default") else mode


def networks_of(mode: str, further: tuple[str, ...], podman: bool) -> tuple[str, ...]:
    """The networks that it should be connected to.

    Args:
        mode: its network mode: the first network, or that it shares or has none.
        further: the networks beyond the first.
        podman: whether Podman runs it, which says `bridge` for every first network: that one cannot be told.
    """
    if mode in _NO_NETWORK or ":" in mode:
        return further
    return further if podman else (first_of(mode), *further)


def joined(networks: Mapping[str, Any]) -> tuple[str, ...]:
    """The names and ids of the networks that it is connected to, from its inspection."""
    ids = {str((network or {}).get("NetworkID") or "") for network in networks.values()}
    return tuple(sorted({*networks, *ids} - {""}))


def unjoined(wanted: tuple[str, ...], there: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the wanted networks that are not among the ones it is connected to, sorted."""
    lost = set(wanted) - set(there)
    return tuple(sorted(one for one in lost if not (_ID.fullmatch(one) and any(it.startswith(one) for it in there))))
