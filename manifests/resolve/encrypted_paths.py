"""The encrypted files of the tree that references name: what a source has to make readable below the manifests' directory.

Called by `load.py`. The values are asked and not the documents, because references stand in settings of providers too.
"""

import posixpath
from collections.abc import Iterator, Mapping

from manifests.problems import NOWHERE, Where
from manifests.values.desired import Desired
from manifests.values.secret_sources import SecretSource


def encrypted_paths(desired: Desired) -> dict[str, Where]:
    """Each path relative to the manifests' directory, in normal form, with the first object that names it."""
    paths: dict[str, Where] = {}
    for path, where in _named(desired):
        if path and not path.startswith("/"):
            paths.setdefault(posixpath.normpath(path), where)
    return paths


def _named(desired: Desired) -> Iterator[tuple[str, Where]]:
    for workload in desired.workloads:
        main = workload.template.container
        for container in (main, *workload.template.sidecars):
            yield from ((source.encrypted_file, workload.where) for _, source in container.engine.secret_env)
        probes = [probe for probe in (main.startup, main.liveness, main.readiness) if probe is not None]
        for probe in probes:
            yield from _in_headers(probe.headers, workload.where)
    for policy in desired.policies:
        if policy.check is not None:
            yield from _in_headers(policy.check.headers, policy.where)
    for check in desired.checks:
        yield from _in_headers(check.check.headers, check.where)
    for provider in desired.providers:
        yield from ((path, provider.where) for path in _in_settings(provider.settings))
    metrics = desired.instance.metrics
    if metrics is not None and metrics.token is not None:
        yield metrics.token.encrypted_file, NOWHERE


def _in_headers(headers: tuple[tuple[str, str | SecretSource], ...], where: Where) -> Iterator[tuple[str, Where]]:
    yield from ((value.encrypted_file, where) for _, value in headers if isinstance(value, SecretSource))


def _in_settings(value: object) -> Iterator[str]:
    """The files of references `{sops: {file: …}}` and `{age: {file: …}}` in the settings of a provider."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name in ("sops", "age") and isinstance(inner, Mapping) and isinstance(inner.get("file"), str):
                yield str(inner["file"])
            else:
                yield from _in_settings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _in_settings(inner)
