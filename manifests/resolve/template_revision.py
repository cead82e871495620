"""The revision of a pod template: equal when no new container is needed. Called by `pod.py`."""

import json
from hashlib import sha256
from typing import Any

from manifests.kinds.pod import Container, PodTemplate
from manifests.resolve.repository_files import NO_FILES, RepositoryFiles
from manifests.values.files import OnFilesChange

HASH_VERSION = 1
"""Version of the revision hash. It is part of the hash, and containers record it beside the revision."""

_NOT_HASHED: dict[str, Any] = {
    "spec": {
        "termination_grace_period_seconds": True,
        "volumes": {"__all__": {"access_mode": True, "files": {"from_", "items", "mode", "signal"}}},
        "containers": {
            "__all__": {
                "liveness_probe",
                "readiness_probe",
                "startup_probe",
                "resources",
                "image_pull_policy",
                "env_file",
            }
        },
    }
}
"""Fields that take effect on running containers, or only while containers are created or replaced; and references to files of the
repository, for which their content counts."""


def template_revision(template: PodTemplate, files: RepositoryFiles = NO_FILES) -> str:
    """16 hex digits of SHA-256 over the fields that the manifest sets and whose change needs a new container.

    Fields at their default are not part of it, so that a later version of the program with more fields, or with other
    defaults, computes the same revision. Neither the order of keys nor the style of the YAML matters. Of the probes only one
    fact counts: whether they read the runtime's own health check, because its settings are fixed at creation.
    Of files of the repository the content counts, not where it comes from: the digest of a volume with `onChange: rollout`, and the
    variables of an `envFile` as if they were in `env`.
    """
    explicit = template.model_dump(mode="python", by_alias=True, exclude_unset=True, exclude=_NOT_HASHED)
    checked = [container.name for container in template.spec.containers if _reads_runtime_health(container)]
    if checked:
        explicit["runtimeHealth"] = checked
    for volume in explicit["spec"].get("volumes", ()):
        made = files.volumes.get(volume["name"])
        if made is not None and made.on_change is OnFilesChange.ROLLOUT:
            volume["files"]["digest"] = made.digest
    for container in explicit["spec"]["containers"]:
        given = files.variables.get(container["name"])
        if given is not None and given.variables:
            container["env"] = [
                *({"name": name, "value": value} for name, value in sorted(given.variables)),
                *container.get("env", ()),
            ]
    canonical = json.dumps(explicit, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return sha256(f"{HASH_VERSION}\n{canonical}".encode()).hexdigest()[:16]


def _reads_runtime_health(container: Container) -> bool:
    probes = (container.liveness_probe, container.readiness_probe, container.startup_probe)
    return any(probe is not None and probe.runtime_health is not None for probe in probes)
