"""The networks that a container of ours was created for, and those of them that it is not connected to. Pure.

An engine goes on running a container that somebody disconnects (`docker network disconnect`): nobody reaches it any more, and
a restart does not bring the network back. Called by `docker_life.py` and `docker_act.py`.
"""

DEFAULT = "bridge"
"""The network of a container that asked for none, in Docker's words."""

_NO_NETWORK = frozenset({"host", "none"})


def networks_of(mode: str, further: tuple[str, ...], podman: bool) -> tuple[str, ...]:
    """The networks that it should be connected to.

    Args:
        mode: its network mode: the first network, or that it shares or has none.
        further: the networks beyond the first.
        podman: whether Podman runs it, which says `bridge` for every first network: that one cannot be told.
    """
    if mode in _NO_NETWORK or ":" in mode:
        return further
    first = () if podman else (DEFAULT if mode in ("", "default") else mode,)
    return (*first, *further)


def unjoined(wanted: tuple[str, ...], joined: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the wanted networks that it is not connected to, sorted."""
    return tuple(sorted(set(wanted) - set(joined)))
