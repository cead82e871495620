"""Makes the client of a forge. Called by the notifier and by commands; httpx is imported with the first call of this."""

from collections.abc import Callable

from manifests.values.notices import Forge as Settings
from manifests.values.notices import ForgeType
from reconciler.forge.protocol import Forge


def connect(settings: Settings, steady: Callable[[], int], wall: Callable[[], float]) -> Forge:
    """The client of this forge. It connects with its first call.

    Args:
        settings: from the Instance.
        steady: steady clock in ns.
        wall: seconds since 1970.
    """
    # Imported here: httpx costs start-up time, and few instances have a forge.
    if settings.type is ForgeType.GITHUB:
        from reconciler.forge.github import GitHub  # noqa: PLC0415

        return GitHub(settings, steady, wall)
    if settings.type is ForgeType.GITLAB:
        from reconciler.forge.gitlab import GitLab  # noqa: PLC0415

        return GitLab(settings, steady, wall)
    from reconciler.forge.gitea import Gitea  # noqa: PLC0415

    return Gitea(settings, steady, wall)
