"""From the checked Instance to its value. Called by `resolver.py`."""

from manifests import kinds
from manifests.kinds.instance import InstanceSpec
from manifests.kinds.validate import Declared
from manifests.problems import Code, Problem
from manifests.resolve.notices import informed
from manifests.resolve.push import listener, needs_server
from manifests.resolve.references import Scope
from manifests.types.listen import split_address
from manifests.values import desired
from manifests.values.secret_sources import Decryption, SecretPrograms, SecretSource
from manifests.values.write_back import Deployer, Writing

EXAMPLE = """\
apiVersion: reconciler/v1
kind: Instance
metadata: {name: this}
spec:
  id: my-host"""


def instance(scope: Scope) -> desired.Instance | None:
    """The Instance of the tree; None when there is no valid one, after reporting that it is missing."""
    declared = scope.all("Instance")
    if not declared:
        if not scope.incomplete:
            to = " to the file or directory of --instance" if scope.confined else ""
            hint = f"add this document with your own id{to}:\n{EXAMPLE}"
            scope.problems.append(Problem(".", 0, 0, Code.NO_INSTANCE, "", "the manifests declare no Instance", hint))
        return None
    manifest = declared[0].manifest
    if not isinstance(manifest, kinds.Instance):
        return None
    spec = manifest.spec
    return desired.Instance(
        id=spec.id,
        prune=spec.prune,
        look_runtime=int(spec.intervals.runtime),
        look_endpoints=int(spec.intervals.endpoints),
        look_dns=int(spec.intervals.dns),
        push=listener(declared[0], scope, manifest),
        metrics=_metrics(declared[0], scope, manifest),
        webhook=_webhook(declared[0], scope, manifest),
        enhanced_liveness=spec.enhanced_liveness,
        allow_addresses=tuple(sorted(spec.allow_addresses)),
        informed=informed(declared[0], scope, manifest),
        reviews=None if spec.reviews is None else spec.reviews.value(),
        secret_programs=secret_programs(spec, local=declared[0].local),
        source_secrets=_source_secrets(spec),
        writing=_writing(spec),
    )


def secret_programs(spec: InstanceSpec, *, local: bool) -> SecretPrograms:
    """What runs for secrets. Files of a tree without local documents may name any key service: that tree is trusted like a script."""
    commands = tuple(command.value() for command in spec.secret_commands)
    if spec.decryption is not None:
        return SecretPrograms(commands, spec.decryption.value())
    return SecretPrograms(commands, Decryption(key_services=() if local else None))


def _source_secrets(spec: InstanceSpec) -> tuple[SecretSource, ...]:
    """The credentials of the git source."""
    references = () if spec.source is None else (spec.source.token, spec.source.ssh_key)
    return tuple(reference.source() for reference in references if reference is not None)


def _writing(spec: InstanceSpec) -> Writing:
    """How this instance changes its manifests."""
    write_back = None if spec.source is None or spec.source.write_back is None else spec.source.write_back.value()
    deployers = tuple(
        Deployer(given.workload, given.token.source(), given.container or "") for given in spec.deployments
    )
    return Writing(write_back, deployers, None if spec.image_policies is None else spec.image_policies.value())


def _metrics(declared: Declared, scope: Scope, manifest: kinds.Instance) -> desired.MetricsListener | None:
    """Where metrics are served. Reports missing packages."""
    spec = manifest.spec.metrics
    if spec is None:
        return None
    needs_server(declared, scope, "metrics")
    return desired.MetricsListener(split_address(spec.listen), None if spec.token is None else spec.token.source())


def _webhook(declared: Declared, scope: Scope, manifest: kinds.Instance) -> desired.WebhookListener | None:
    """Where a forge reports pushes. Reports missing packages."""
    source = manifest.spec.source
    if source is None or source.webhook is None:
        return None
    needs_server(declared, scope, "webhook", "source")
    tags = source.verify is not None and source.verify.mode == "tag"
    return source.webhook.listener(source.parsed.ref, tags=tags)
