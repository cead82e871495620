"""Creating a replica: images, networks, the main container, then the members. Called by `DockerRuntime`.

A kill between two of these requests leaves a main container without all its members. Its label names the members it must have,
so the next start finds it incomplete and removes it, and it is created again: nothing has run in it yet.
"""

import os
import threading
from collections.abc import Sequence
from typing import Any

from manifests.values.desired import Container
from manifests.values.pod import PullPolicy, VolumeKind
from manifests.values.privileges import printable
from providers.actions import CreateContainer
from providers.errors import Conflict, Foreign, Gone, OutcomeUnknown, ProviderError, Rejected
from providers.facts import Mark, container_name
from providers.lib.secrets import resolve
from providers.runtime.docker.client import EngineClient, hint
from providers.runtime.docker.container import EngineContainer
from providers.runtime.docker.digest import source_of
from providers.runtime.docker.observe import Observer
from providers.runtime.docker.pull import Images
from providers.runtime.docker.secrets import LABEL_SECRETS, secrets_label
from providers.runtime.docker.spec import add_action_fields, full_image, members_of, payload, primary_network

BUILT_IN_NETWORKS = frozenset({"bridge", "podman", "default"})
"""Networks that every engine has."""


class Creator:
    """Creates the replicas of one node."""

    def __init__(self, client: EngineClient, observer: Observer, images: Images) -> None:
        self._client, self._observer, self._images = client, observer, images
        self._network_lock = threading.Lock()

    def create(self, action: CreateContainer) -> None:
        """Create a replica; does nothing when one with the same mark exists. Raises as the contract says."""
        if container_name(action.mark) != action.name:
            cause = f"its owner mark belongs to the name {container_name(action.mark)}"
            raise Rejected(action.name, cause, "derive the name from the mark")
        present = self._observer.pod(action.name)
        if present is not None and not present.headless:
            self._check_same(present.main, action)
            return
        template, podman = action.template, self._observer.podman()
        containers = members_of(template)
        if podman:
            _check_sources(action.name, containers)
        images = self._sources(action, containers)
        self._images.ensure(action.name, images)
        for container, (image, _) in zip(containers, images, strict=True):
            if container.engine.run_as_non_root and not container.engine.user:
                self._check_user(action.name, container, image)
        secrets = [_reveal(action.name, container) for container in containers]
        for container in template.sidecars:
            self._remove_leftover(f"{action.name}-{container.name}", action.mark)
        network = primary_network(template, podman)
        for name in (network, *template.networks[1:]):
            self.network(action.name, name, action.mark.instance)
        body = payload(template.container, template, action.mark, secrets[0], network, podman=podman)
        _add_secrets_label(body, template.container, secrets[0])
        add_action_fields(body, action, images[0][0])
        main_id = self._create_one(action.name, body, action)
        for name in template.networks[1:]:
            self._client.post(f"/networks/{name}/connect", action.name, {"Container": main_id})
        for container, values, (image, _) in zip(template.sidecars, secrets[1:], images[1:], strict=True):
            self._member(action, container, values, image, main_id, podman)

    def _sources(self, action: CreateContainer, containers: Sequence[Container]) -> list[tuple[str, PullPolicy]]:
        """The name and the pull policy of each container's image. Raises Rejected, Unreachable."""
        pins = dict(action.pins)
        sources = []
        for container in containers:
            image = full_image(action.name, container)
            pin = pins.get("" if container is containers[0] else container.name, "")
            sources.append(source_of(image, container.engine.pull, pin, self._images.present, self._images.loaded))
        return sources

    def _check_user(self, target: str, container: Container, image: str) -> None:
        """Refuse an image whose user is root, or a name that may be root (as Kubernetes does). Raises Rejected."""
        config = self._client.get(f"/images/{image}/json", target).get("Config") or {}
        user = str(config.get("User") or "").partition(":")[0]
        if user.isascii() and user.isdecimal() and int(user) != 0:
            return
        named = f"is '{printable(user)}', a name that may be root" if user and not user.isdecimal() else "is root"
        cause = f"container {container.name} has runAsNonRoot: true, and the user of its image {named}"
        raise Rejected(target, cause, "set runAsUser, or a numeric user in the image")

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
        _add_secrets_label(body, container, secrets)
        add_action_fields(body, action, image)
        self._create_one(f"{action.name}-{container.name}", body, action)

    def _create_one(self, name: str, body: dict[str, object], action: CreateContainer) -> str:
        """Create one container; its id. When another writer took the name first, its container is compared."""
        try:
            made = self._client.post("/containers/create", name, body, patience=5.0, name=name)
        except ProviderError as error:
            if isinstance(error, Gone):  # the image or a network was removed meanwhile
                raise Conflict(name, error.cause, "retried automatically") from error
            other = self._observer.container(name)
            if other is None:
                raise
            self._check_same(other, action)
            return other.id
        if not made or not made.get("Id"):
            raise OutcomeUnknown(
                name, "the engine does not report the id of the new container", "retried automatically"
            )
        return str(made["Id"])

    def _check_same(self, present: EngineContainer, action: CreateContainer) -> None:
        mark, _ = present.mark
        if mark == action.mark:
            return
        if mark is None or mark.instance != action.mark.instance:
            cause = f"the name is taken by the foreign container {present.id[:12]}"
            raise Foreign(present.name, cause, self._rename(present.name))
        raise Conflict(present.name, f"exists with another owner mark: {mark}", "retried automatically")

    def _rename(self, name: str) -> str:
        """The next step for a container that is in the way."""
        return f"remove or rename it: {'podman' if self._observer.podman() else 'docker'} rename {name} other-name"

    def _remove_leftover(self, name: str, mark: Mark) -> None:
        """Remove a container that an earlier replica of the same workload left under a member's name."""
        leftover = self._observer.container(name)
        if leftover is None:
            return
        owner, _ = leftover.mark
        if owner is None or (owner.instance, owner.workload) != (mark.instance, mark.workload):
            cause = f"the name is taken by the foreign container {leftover.id[:12]}"
            raise Foreign(name, cause, self._rename(name))
        self._client.delete(f"/containers/{leftover.id}", name, force="1", v="1")

    def network(self, target: str, name: str, instance: str) -> None:
        """Make sure that a network exists: an engine's own, an existing one, or a new bridge. It is never removed."""
        if name in BUILT_IN_NETWORKS:
            return
        # Replicas are created in parallel, and Docker creates two networks of one name when both requests come at the same time.
        with self._network_lock:
            if not self._has_network(target, name):
                self._create_network(target, name, instance)

    def _has_network(self, target: str, name: str) -> bool:
        try:
            present = self._client.get(f"/networks/{name}", target)
        except Gone:
            return False
        if not isinstance(present, dict):
            return True
        if present.get("Driver") in ("host", "null") and present.get("Name") != name:
            # Manifests cannot name these; their ids, or the beginning of one, would give a container all ports of the node.
            cause = f"'{name}' is the id of network '{present.get('Name')}', which cannot be used"
            raise Rejected(target, cause, "write the name of another network")
        return True

    def _create_network(self, target: str, name: str, instance: str) -> None:
        body = {"Name": name, "Driver": "bridge", "CheckDuplicate": True, "Labels": {"reconciler.network-of": instance}}
        try:
            self._client.post("/networks/create", target, body, patience=5.0)
        except Conflict:
            return  # another writer was faster
        except ProviderError as error:
            # Podman answers 500 for a name that exists.
            if "already" in error.cause:
                return
            raise


def _check_sources(target: str, containers: Sequence[Container]) -> None:
    """Raise Rejected for a bind mount whose source does not exist: Docker refuses it, Podman would create a directory."""
    for container in containers:
        for mount in container.engine.mounts:
            if mount.kind is VolumeKind.BIND and not os.path.lexists(mount.source):
                cause = f"bind source path does not exist: {mount.source}, mounted by container {container.name}"
                raise Rejected(target, cause, hint(cause))


def _reveal(target: str, container: Container) -> dict[str, str]:
    """The values of a container's secret variables. Raises Rejected, Unreachable."""
    return {name: resolve(source, target).reveal() for name, source in container.engine.secret_env}


def _add_secrets_label(body: dict[str, Any], container: Container, values: dict[str, str]) -> None:
    """Record the secrets that it is created with. Always set, also when empty: labels are inherited from the image."""
    body["Labels"][LABEL_SECRETS] = secrets_label(container.name, container.engine.secret_env, values)
