"""What one run may do beyond its manifests: flags of the command line, merged into the manifests before the run.

Made by `cli/run.py`, applied by `wire.py` to every version of the manifests that the run reads.
"""

from dataclasses import dataclass, replace

from manifests.values.desired import Desired


@dataclass(frozen=True, slots=True)
class Intent:
    """What a run may do.

    `prune` None: as the Instance says. `approve`: the hash of the held changes that the operator approved; `who`: that operator, for the audit. `apply_command`: the command
    line of `reconcile apply` with the same PATH and options, for messages; empty = that of `Desired`. `where` are the options that name
    the instance. `planned`, `approves` and `revision` are of a saved plan: the items that the run may remove or disrupt, the items that
    the operator approved with it (and `approves_text` what they are), and the only revision of the manifests that it is for.
    """

    prune: bool | None = None
    take_over: bool = False
    destroy: bool = False
    approve: str = ""
    who: str = ""
    apply_command: str = ""
    where: str = ""
    planned: frozenset[str] | None = None
    approves: tuple[str, ...] = ()
    approves_text: str = ""
    revision: str = ""

    def applied_to(self, desired: Desired) -> Desired:
        """The manifests with this intent. With `destroy` they contain no object any more, so that all of them are removed."""
        prune = desired.instance.prune if self.prune is None else self.prune
        command = self.apply_command or desired.apply_command
        desired = replace(desired, prune=prune, take_over=self.take_over, destroy=self.destroy, apply_command=command)
        desired = replace(desired, where=self.where or desired.where, planned=self.planned)
        if not self.destroy:
            return desired
        return replace(
            desired,
            workloads=(),
            services=(),
            policies=(),
            checks=(),
            records=(),
            record_lists=(),
            services_of={},
            former={workload.key: workload for workload in desired.workloads},
        )
