"""From the checked image policies of a Workload to values. Called by `workload.py`."""

from manifests import kinds
from manifests.kinds.image_policy import ImagePolicy
from manifests.kinds.validate import Declared
from manifests.problems import Code
from manifests.resolve.references import Scope
from manifests.values import image_policy as values
from manifests.values.image_ref import parse_image
from manifests.values.version_range import parse_range


def image_policies(declared: Declared, scope: Scope, manifest: kinds.Workload) -> tuple[values.ImagePolicy, ...]:
    """The policies. Reports those that no local document allows, and those of a container without an image."""
    given = manifest.spec.image_policies
    if not given:
        return ()
    instances = scope.all("Instance")
    instance = instances[0].manifest if instances else None
    settings = instance.spec.image_policies if isinstance(instance, kinds.Instance) else None
    if isinstance(instance, kinds.Instance) and settings is None:
        message = f"{declared.key}: imagePolicies do nothing: the Instance does not allow them"
        hint = (
            "add imagePolicies: {registries: [{server: HOST}]} to the Instance of the local documents, or remove them"
        )
        scope.report(declared, ("spec", "imagePolicies"), Code.UNKNOWN_REFERENCE, message, hint)
    images = {container.name: container.image for container in manifest.spec.template.spec.containers}
    declared_images = {
        choice.container: choice.declared for choice in scope.choices.get(declared.key, ()) if choice.image
    }
    resolved = []
    for index, policy in enumerate(given):
        image = images.get(policy.container)
        if not image:
            what = "has no image" if policy.container in images else "does not exist"
            message = f"{declared.key}: container '{policy.container}' of an image policy {what}"
            hint = f"write one of: {', '.join(name for name, known in images.items() if known) or 'a container with an image'}"
            path = ("spec", "imagePolicies", index, "container")
            scope.report(declared, path, Code.UNKNOWN_REFERENCE, message, hint)
            continue
        value = policy_value(policy, image, declared_images.get(policy.container, image))
        known = {registry.server for registry in settings.registries} if settings is not None else {value.registry}
        if value.registry not in known:
            message = f"{declared.key}: the registry {value.registry} of container '{policy.container}' is not in the Instance"
            hint = f"add to the Instance of the local documents:\nspec: {{imagePolicies: {{registries: [{{server: '{value.registry}'}}]}}}}"
            scope.report(declared, ("spec", "imagePolicies", index, "container"), Code.UNKNOWN_REFERENCE, message, hint)
        resolved.append(value)
    return tuple(resolved)


def policy_value(policy: ImagePolicy, image: str, declared: str) -> values.ImagePolicy:
    """The value of one policy. `image` is the one in force, `declared` the one in the manifest."""
    parsed = parse_image(image)
    newest, digest = policy.newest, policy.digest
    shown = f"digest of {digest.tag}" if digest is not None else f"semver {policy.semver}"
    if newest is not None:
        shown = f"newest {newest.pattern} ({newest.order})"
    return values.ImagePolicy(
        policy.container,
        image,
        parsed.domain,
        parsed.path,
        int(policy.interval),
        versions=None if policy.semver is None else parse_range(policy.semver),
        newest=policy.expression(),
        order=values.Order(newest.order if newest is not None else "numeric"),
        tag="" if digest is None else digest.tag,
        shown=shown,
        declared=declared,
    )
