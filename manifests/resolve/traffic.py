"""From what manifests say of traffic to the values of `traffic.py`. Called by `build.py`."""

from manifests import kinds
from manifests.kinds.service import ServiceSpec
from manifests.kinds.validate import Declared
from manifests.kinds.workload import Drain
from manifests.problems import Code
from manifests.resolve.references import Scope
from manifests.values import traffic


def ramp(spec: ServiceSpec) -> traffic.Ramp | None:
    """How new endpoints of a service get their weight; None = at once."""
    return None if spec.ramp is None else traffic.Ramp(int(spec.ramp.duration), int(spec.ramp.min_share))


def panic(declared: Declared, scope: Scope, manifest: kinds.Service) -> traffic.Panic:
    """What happens to the weights of a service while too few endpoints are ready; a warning where pools may become empty."""
    given = manifest.spec.panic
    mode = traffic.PanicMode(given.mode)
    if mode is traffic.PanicMode.CLOSED:
        message = f"{declared.key}: when all endpoints fail, its pools become empty and clients get errors"
        hint = "write mode: freeze to keep the weights that the endpoints have"
        scope.report(declared, ("spec", "panic", "mode"), Code.FAILS_CLOSED, message, hint)
    return traffic.Panic(int(given.threshold), mode, given.override_pushes)


def drain_min(given: Drain) -> int:
    """How long nothing must be in flight before a stop (ns): the default is never longer than the longest wait."""
    return min(int(given.min), int(given.max))
