"""Creating a replica: images, networks, the main container, then the members. Called by `DockerRuntime`.

A kill between two of these requests leaves a main container without all its members. It says in a label which ones it must
have, so the next start sees that it is incomplete, takes it away, and it is created anew: nothing has run in it yet.
"""

import os
import threading
from collections.abc import Sequence
from typing import Any

from manifests.values.desired import Container
from manifests.values.pod import PullPolicy, VolumeKind
from providers.actions import CreateContainer
from providers.errors import Conflict, Foreign, Gone, OutcomeUnknown, ProviderError, Rejected
from providers.facts import Mark, container_name
from providers.runtime.docker.client import Link, hint
from providers.runtime.docker.digest import source_of
from providers.runtime.docker.life import Life
from providers.runtime.docker.observe import Looks
from providers.runtime.docker.pull import Images
from providers.runtime.docker.secrets import LABEL_SECRETS, secret_ref, secrets_label
from providers.runtime.docker.spec import full_image, give, members_of, payload, primary_network

BUILT_IN_NETWORKS = frozenset({"bridge", "podman", "default"})
"""Networks that an engine always has."""


class Creator:
    """Creates the replicas of one node."""

    def __init__(self, link: Link, looks: Looks, images: Images) -> None:
        self._link, self._looks, self._images = link, looks, images
        self._networking = threading.Lock()

    def create(self, action: CreateContainer) -> None:
        """Create a replica; one with the same mark is there: nothing to do. Raises as the contract says."""
        if container_name(action.mark) != action.name:
            wanted = container_name(action.mark)
            raise Rejected(action.name, f"its mark belongs to the name {wanted}", "derive the name from the mark")
        present = self._looks.pod(action.name)
        if present is not None and not present.headless:
            self._check_same(present.main, action)
            return
        template, podman = action.template, self._looks.podman()
        containers = members_of(template)
        if podman:
            _check_sources(action.name, containers)
        images = self._sources(action, containers)
        self._images.ensure(action.name, images)
        secrets = [_reveal(action.name, container) for container in containers]
        for container in template.sidecars:
            self._clear(f"{action.name}-{container.name}", action.mark)
        network = primary_network(template, podman)
        for name in (network, *template.networks[1:]):
            self.network(action.name, name, action.mark.instance)
        body = payload(template.container, template, action.mark, secrets[0], network, podman=podman)
        _seal(body, template.container, secrets[0])
        give(body, action, images[0][0])
        main_id = self._put(action.name, body, action)
        for name in template.networks[1:]:
            self._link.post(f"/networks/{name}/connect", action.name, {"Container": main_id})
        for container, values, (image, _) in zip(template.sidecars, secrets[1:], images[1:], strict=True):
            self._member(action, container, values, image, main_id, podman)

    def _sources(self, action: CreateContainer, containers: Sequence[Container]) -> list[tuple[str, PullPolicy]]:
        """By which name each container's image is asked for, and when. Raises Rejected, Unreachable."""
        pins = dict(action.pins)
        found = []
        for container in containers:
            image = full_image(action.name, container)
            pin = pins.get("" if container is containers[0] else container.name, "")
            found.append(source_of(image, container.engine.pull, pin, self._images.present))
        return found

    def _member(
        self,
        action: CreateContainer,
        container: Container,
        secrets: dict[str, str],
        image: str,
        main_id: str,
        podman: bool,
    ) -> None:
        network = f"container:{main_id}"
        body = payload(container, action.template, action.mark, secrets, network, podman=podman)
        _seal(body, container, secrets)
        give(body, action, image)
        self._put(f"{action.name}-{container.name}", body, action)

    def _put(self, name: str, body: dict[str, object], action: CreateContainer) -> str:
        """Create one container; its id. A race for the name that somebody else won is told apart."""
        try:
            made = self._link.post("/containers/create", name, body, patience=5.0, name=name)
        except ProviderError as error:
            if isinstance(error, Gone):  # the image went between the look and now, or a network did
                raise Conflict(name, error.cause, "look again") from error
            other = self._looks.life(name)
            if other is None:
                raise
            self._check_same(other, action)
            return other.id
        if not made or not made.get("Id"):
            raise OutcomeUnknown(name, "the engine does not say what it created", "look again")
        return str(made["Id"])

    def _check_same(self, present: Life, action: CreateContainer) -> None:
        mark, _ = present.mark
        if mark == action.mark:
            return
        if mark is None or mark.instance != action.mark.instance:
            cause = f"the name is taken by somebody else's container {present.id[:12]}"
            raise Foreign(present.name, cause, f"remove or rename it: docker rename {present.name} other-name")
        raise Conflict(present.name, f"exists with another mark: {mark}", "look again")

    def _clear(self, name: str, mark: Mark) -> None:
        """Take away what an earlier replica of the same mark has left under a member's name."""
        left = self._looks.life(name)
        if left is None:
            return
        found, _ = left.mark
        if found is None or (found.instance, found.workload) != (mark.instance, mark.workload):
            cause = f"the name is taken by somebody else's container {left.id[:12]}"
            raise Foreign(name, cause, f"remove or rename it: docker rename {name} other-name")
        self._link.delete(f"/containers/{left.id}", name, force="1", v="1")

    def network(self, target: str, name: str, instance: str) -> None:
        """Have a network: an engine's own, an existing one, or a new bridge. It is never removed."""
        if name in BUILT_IN_NETWORKS:
            return
        # Replicas are created at once, and Docker takes a name twice when it is asked for it at the same time.
        with self._networking:
            if not self._has_network(target, name):
                self._make_network(target, name, instance)

    def _has_network(self, target: str, name: str) -> bool:
        try:
            self._link.get(f"/networks/{name}", target)
        except Gone:
            return False
        return True

    def _make_network(self, target: str, name: str, instance: str) -> None:
        body = {"Name": name, "Driver": "bridge", "CheckDuplicate": True, "Labels": {"reconciler.network-of": instance}}
        try:
            self._link.post("/networks/create", target, body, patience=5.0)
        except Conflict:
            return  # somebody else was faster
        except ProviderError as error:
            # Podman answers 500 for a name that exists.
            if "already" in error.cause:
                return
            raise


def _check_sources(target: str, containers: Sequence[Container]) -> None:
    """Raise Rejected for a bind mount whose source does not exist: Docker refuses it, Podman would make a directory."""
    for container in containers:
        for mount in container.engine.mounts:
            if mount.kind is VolumeKind.BIND and not os.path.lexists(mount.source):
                cause = f"bind source path does not exist: {mount.source}, which container {container.name} mounts"
                raise Rejected(target, cause, hint(cause))


def _reveal(target: str, container: Container) -> dict[str, str]:
    """The values of a container's secret variables. Raises Rejected, Unreachable."""
    return {name: secret_ref(source).resolve(target).reveal() for name, source in container.engine.secret_env}


def _seal(body: dict[str, Any], container: Container, values: dict[str, str]) -> None:
    """Write down by which secrets it was made. Set always, also when empty: labels are inherited from the image."""
    body["Labels"][LABEL_SECRETS] = secrets_label(container.name, container.engine.secret_env, values)
