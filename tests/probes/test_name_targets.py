"""The shell's probing of DNS target addresses: from checks in manifests to probe targets, and from results to verdicts."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import SECOND, Desired
from manifests.values.dns import Check, DNSPolicy, HealthCheck, Publish, Target
from manifests.values.secret_sources import SecretSource
from providers.facts import ProbeFact, ProbeValue
from reconciler.core.model.target_probe import TargetProbe
from reconciler.probes.target import Target as ProbeTarget
from reconciler.shell.probing.name_targets import LEAF, MAX_UNCLEAR, generation_of, probe_of
from reconciler.shell.probing.targets import EVERYTHING
from tests.probes.fake_prober import Shell
from tests.sim.manifest import Shop

PASS, FAIL, UNKNOWN, CANNOT_RUN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN, ProbeValue.CANNOT_RUN
CHECK = Check(host="app.example.com", port=8443, path="/ok", interval=10 * SECOND, expected=(200, 204))


def policy(*addresses: str, check: Check | None = CHECK, weight: int = 100, hostname: str = "") -> DNSPolicy:
    targets = [Target("fixed", Publish.ADDRESSES, addresses=addresses, weight=weight)]
    if hostname:
        targets.append(Target("cloud", Publish.HOSTNAME, hostname=hostname))
    return DNSPolicy("dnspolicy/app", "app", "app.example.com.", "dns", "example.com.", tuple(targets), check=check)


class World(Shell):
    """Policies, and the shell's probing over them."""

    def __init__(self, root: Path, *policies: DNSPolicy) -> None:
        super().__init__()
        empty = replace(Shop(()).desired(), root=str(root), workloads=(), services=())
        self.desired: Desired = empty
        self.want(*policies)

    def want(self, *policies: DNSPolicy, checks: tuple[HealthCheck, ...] = (), allowed: tuple[str, ...] = ()) -> None:
        instance = replace(self.desired.instance, allow_addresses=allowed)
        revision = str(hash((policies, checks, allowed)))
        self.desired = replace(self.desired, policies=policies, checks=checks, instance=instance, revision=revision)

    async def aim(self, silent: frozenset[str] = frozenset()) -> list[ProbeTarget]:
        await self.probing.retarget(self.desired, (), silent)
        return sorted(self.prober.targets.values(), key=lambda target: target.address)

    def report(self, check_target: TargetProbe, value: ProbeValue, last: ProbeValue | None = None) -> tuple[bool, bool]:
        now = self.clock.now().steady
        fact = ProbeFact(value, last or value, 1, 5, now, now, 33 * SECOND, "said")
        self.prober.results[generation_of(check_target), LEAF] = fact
        return self.probing.read()

    @property
    def verdicts(self) -> dict[str, ProbeValue]:
        return {check_target.address: fact.value for check_target, fact in self.probing.name_targets.verdicts.items()}


async def test_each_address_of_a_policy_is_probed_with_its_check(tmp_path: Path) -> None:
    world = World(tmp_path, policy("203.0.113.1", "203.0.113.2", hostname="lb.cloud.example."))
    first, second, host_name = await world.aim()
    assert [first.address, second.address, host_name.address] == ["203.0.113.1", "203.0.113.2", "lb.cloud.example."]
    assert {target.name for target in (first, second, host_name)} == {LEAF}
    probe = first.probe
    assert (probe.port, probe.path, probe.scheme, probe.host, probe.period) == (
        8443,
        "/ok",
        "HTTPS",
        "app.example.com",
        10 * SECOND,
    )
    assert (probe.follow, probe.expected) == (False, ((200, 200), (204, 204)))
    assert probe.tls is not None
    assert (probe.tls.verify, probe.tls.server_name) == (True, "app.example.com")
    assert first.allowed == ()


async def test_a_policy_without_a_check_is_not_probed(tmp_path: Path) -> None:
    world = World(tmp_path, policy("203.0.113.1", check=None))
    assert await world.aim() == []
    assert not world.probing.name_targets.undecided()


async def test_the_same_check_in_two_policies_is_probed_once(tmp_path: Path) -> None:
    second = replace(policy("203.0.113.1"), key="dnspolicy/www", name="www")
    world = World(tmp_path, policy("203.0.113.1"), second)
    assert len(await world.aim()) == 1


async def test_a_health_check_without_a_policy_is_probed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.want(checks=(HealthCheck("healthcheck/up", "up", "203.0.113.9", CHECK),))
    assert [target.address for target in await world.aim()] == ["203.0.113.9"]


async def test_the_host_of_a_check_defaults_to_the_host_name() -> None:
    probe = probe_of(TargetProbe("lb.cloud.example.", replace(CHECK, host="")))
    assert probe.host == "lb.cloud.example"
    assert probe.tls is not None
    assert probe.tls.server_name == "lb.cloud.example"
    plain = probe_of(TargetProbe("203.0.113.1", replace(CHECK, host="", protocol="HTTP")))
    assert (plain.host, plain.tls) == ("", None)


async def test_a_changed_verdict_wakes_the_loop_without_a_look_at_containers(tmp_path: Path) -> None:
    world = World(tmp_path, policy("203.0.113.1"))
    await world.aim()
    check_target = TargetProbe("203.0.113.1", CHECK)
    assert world.report(check_target, PASS) == (True, False)
    assert world.report(check_target, PASS) == (False, False)
    assert world.report(check_target, FAIL) == (True, False)
    assert world.verdicts == {"203.0.113.1": FAIL}


async def test_a_verdict_stays_until_its_address_or_check_changes(tmp_path: Path) -> None:
    world = World(tmp_path, policy("203.0.113.1", "203.0.113.2"))
    await world.aim()
    world.report(TargetProbe("203.0.113.1", CHECK), FAIL)
    world.report(TargetProbe("203.0.113.2", CHECK), PASS)
    world.want(policy("203.0.113.1", weight=7))
    await world.aim()
    assert world.verdicts == {"203.0.113.1": FAIL}
    world.want(policy("203.0.113.1", check=replace(CHECK, path="/other")))
    await world.aim()
    assert world.verdicts == {}


async def test_a_late_result_of_a_removed_check_is_ignored(tmp_path: Path) -> None:
    world = World(tmp_path, policy("203.0.113.1"))
    await world.aim()
    world.want()
    await world.aim()
    assert world.report(TargetProbe("203.0.113.1", CHECK), FAIL) == (False, False)
    assert world.verdicts == {}


async def test_the_engine_gets_targets_only_when_they_changed(tmp_path: Path) -> None:
    world = World(tmp_path, policy("203.0.113.1"))
    for _ in range(3):
        await world.aim()
    assert world.prober.updates == 1
    world.want(policy("203.0.113.1"), allowed=("127.0.0.0/8",))
    (first,) = await world.aim()
    assert first.allowed == ("127.0.0.0/8",)


async def test_a_restarted_engine_gets_all_targets_and_verdicts_are_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path, policy("203.0.113.1"))
    await world.aim()
    world.report(TargetProbe("203.0.113.1", CHECK), FAIL)
    world.probing.forget()
    world.prober.restart()
    assert world.verdicts == {}
    assert len(await world.aim()) == 1


async def test_suspending_all_probes_includes_target_addresses(tmp_path: Path) -> None:
    world = World(tmp_path, policy("203.0.113.1"))
    assert await world.aim(frozenset({EVERYTHING})) == []
    assert not world.probing.name_targets.unanswered()
    assert not world.probing.name_targets.undecided()
    assert len(await world.aim()) == 1


async def test_a_check_cannot_run_until_its_secret_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHECK_TOKEN", raising=False)
    check = replace(CHECK, headers=(("Authorization", SecretSource(env="CHECK_TOKEN")),))
    world = World(tmp_path, policy("203.0.113.1", check=check))
    (first,) = await world.aim()
    assert "CHECK_TOKEN" in first.inputs.problem
    monkeypatch.setenv("CHECK_TOKEN", "sesame")
    world.clock.advance(60 * SECOND)
    for _ in range(10):  # reading runs beside `aim`
        await asyncio.sleep(0)
        (first,) = await world.aim()
    assert [secret.reveal() for secret in first.inputs.secrets] == ["sesame"]
    assert "sesame" not in repr(first)


async def test_a_single_run_waits_only_for_possible_verdicts(tmp_path: Path) -> None:
    world = World(tmp_path, policy("203.0.113.1"))
    await world.aim()
    target_addresses, check_target = world.probing.name_targets, TargetProbe("203.0.113.1", CHECK)
    assert target_addresses.unanswered()
    assert target_addresses.undecided()
    world.report(check_target, UNKNOWN, FAIL)
    assert not target_addresses.unanswered()
    assert target_addresses.undecided()
    world.report(check_target, FAIL)
    assert not target_addresses.undecided()
    for _ in range(MAX_UNCLEAR):
        assert world.report(check_target, UNKNOWN, UNKNOWN) is not None
    assert not target_addresses.undecided()
    world.report(check_target, CANNOT_RUN)
    assert not target_addresses.undecided()
    assert target_addresses.open() == ("203.0.113.1: its check has no verdict (said)",)
    world.report(check_target, PASS)
    assert target_addresses.open() == ()


async def test_a_target_address_has_the_same_identity_in_every_process() -> None:
    first = generation_of(TargetProbe("203.0.113.1", CHECK))
    assert first == generation_of(TargetProbe("203.0.113.1", replace(CHECK)))
    assert first != generation_of(TargetProbe("203.0.113.1", replace(CHECK, path="/other")))
    assert first != generation_of(TargetProbe("203.0.113.2", CHECK))
