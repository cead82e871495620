"""What a step asked for: the digest that binds a failure to its cause. Called by the outbox, by `gates` and by `shell/loop`.

A failed call is remembered with the content of its action, the settings of its provider, and what their references resolved to. A
corrected manifest, other settings or a replaced secret make another digest, and then the step is tried at once.
"""

import json
from collections.abc import Mapping

from manifests.values.desired import Desired
from providers.actions import Action, ChangeRecords, CreateContainer, SetWeight
from providers.facts import fingerprint


def digest(action: Action, desired: Desired, references: Mapping[str, str]) -> str:
    """The digest of an action. What a look observes is no part of it, except the generation of a container.

    Args:
        action: the action.
        desired: the manifests, with the settings of providers.
        references: digests of the resolved references, by the key of the provider or workload that has them.
    """
    content: object = action
    workload = ""
    if isinstance(action, ChangeRecords):
        content = tuple((change.key, change.after, change.owner) for change in action.changes)
        name = action.provider
    elif isinstance(action, SetWeight):
        content = (action.pool, action.endpoint, action.weight)
        name = action.provider
    elif isinstance(action, CreateContainer):
        name, workload = action.node, f"workload/{action.mark.workload}"
    else:
        name = action.node if hasattr(action, "node") else action.provider
    provider = next((provider for provider in desired.providers if provider.name == name), None)
    settings = "" if provider is None else json.dumps(provider.settings, sort_keys=True, default=str)
    key = "" if provider is None else provider.key
    return fingerprint(repr(content), settings, references.get(key, ""), references.get(workload, ""))
