"""TargetProbe: one question about the health of one target address, the key of `Observed.target_answers`.

`dns/target_health` makes it from manifests, the shell aims it and the probe engine answers. Two targets with the same address
and the same question share one probe, whatever gateways, policies or documents they belong to.
"""

from typing import NamedTuple

from manifests.values.desired import Probe, ProbeKind, ProbeTLS
from manifests.values.dns import Check


class TargetProbe(NamedTuple):
    """The question and its address: an IP address, or a host name (final dot) that is resolved for each probe.

    Hashable and without secrets: header values that are secret are references.
    """

    address: str
    check: Check

    @property
    def is_name(self) -> bool:
        """Whether the address is a host name: it passes if any of its addresses does."""
        return self.address.endswith(".")

    def probe(self) -> Probe:
        """The same question as a probe of the probe engine. The status of a redirect counts; redirects are not followed."""
        check = self.check
        return Probe(
            ProbeKind.HTTP,
            check.port,
            check.path,
            check.protocol,
            check.headers,
            period=check.interval,
            timeout=check.timeout,
            success_threshold=check.success_threshold,
            failure_threshold=check.failure_threshold,
            host=check.host,
            follow=False,
            expected=tuple((status, status) for status in check.expected),
            tls=ProbeTLS(check.verify, server_name=check.host) if check.protocol == "HTTPS" else None,
        )
