"""The keys of probes that passed, as the ledger keeps them. `replicas/passed_probes` adds and drops rows.

A row says that a probe of one revision of a workload has passed once, on any of its replicas. Nodes are no part of the key: on many
nodes, each of which a workload may use, there would be a row for every pair.
"""

from collections.abc import Iterable, Mapping

from reconciler.core.model.revision import RevisionMark, Rollout, revision_key


def probe_key(workload_key: str, revision: str, probe: str) -> str:
    """The key of one probe of a revision: `workload key@revision|probe`."""
    return f"{revision_key(workload_key, revision)}|{probe}"


def revision_of(key: str) -> str:
    """The `workload key@revision` of a row."""
    return key.rpartition("|")[0]


def read(keys: Iterable[str], revisions: Mapping[str, RevisionMark], rollouts: Mapping[str, Rollout]) -> frozenset[str]:
    """The keys of a stored ledger. Earlier versions kept `workload key|probe|node`: these rows count for the revisions in force.

    Args:
        keys: as stored.
        revisions, rollouts: of the same ledger.
    """
    passed: set[str] = set()
    for key in keys:
        if "@" in revision_of(key):
            passed.add(key)
            continue
        workload, _, probe = revision_of(key).rpartition("|")
        rollout, declared = rollouts.get(workload), revisions.get(workload)
        if rollout is not None and rollout.active:
            passed.add(probe_key(workload, rollout.active, probe))
        if declared is not None:
            passed.add(probe_key(workload, declared.revision, probe))
    return frozenset(passed)
