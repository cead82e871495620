"""The shell's probing of containers: which targets it sends and which results count, with a fake probe engine."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from manifests.values.desired import SECOND, Desired, Probe, ProbeKind, ProbeTLS
from manifests.values.secret_sources import SecretSource
from providers.facts import (
    ContainerFact,
    ContainerState,
    Known,
    Mark,
    PortFact,
    ProbeFact,
    Probes,
    ProbeValue,
    RuntimeHealth,
    Unknown,
)
from providers.spi import Context
from providers.testing.memory import MemorySettings
from providers.testing.memory_runtime import MemoryRuntime
from reconciler.core.model.instant import FOREVER
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.revision import revision_key
from reconciler.core.model.spec import ServicePort, Spec
from reconciler.probes.target import Target
from reconciler.shell.probing.inputs import REFRESH, RETRY
from reconciler.shell.probing.life import settings
from reconciler.shell.probing.targets import EVERYTHING
from reconciler.shell.providers import Providers
from tests.probes.fake_prober import START, Shell
from tests.sim.manifest import HTTP, Shop
from tests.sim.manifest import Spec as Shopped

NODE = "local"
PASS, FAIL, UNKNOWN = ProbeValue.PASS, ProbeValue.FAIL, ProbeValue.UNKNOWN
CA_TEXT = Path(__file__).with_name("named.pem").read_text()


class World(Shell):
    """One node, one workload `web`, and the shell's probing over it."""

    def __init__(self, root: Path, **probes: Probe) -> None:
        super().__init__()
        desired = Shop((Shopped(replicas=1),)).desired()
        (workload,) = desired.workloads
        container = replace(workload.template.container, startup=None, liveness=None, readiness=None)
        container = replace(container, **probes)  # type: ignore[arg-type]
        template = replace(workload.template, container=container)
        self.desired: Desired = replace(desired, root=str(root), workloads=(replace(workload, template=template),))

    def container(self, **fields: object) -> ContainerFact:
        mark = Mark(self.desired.instance.id, "web", 0, self.desired.workloads[0].template.revision)
        values: dict[str, object] = {
            "state": ContainerState.RUNNING,
            "started_at": 1,
            "running_since": START,
            "address": "10.0.0.1",
            "ports": (PortFact(8080, "10.0.0.1", 8080),),
            "mark": mark,
        }
        return ContainerFact(NODE, "web-0", "c1", **(values | fields))  # type: ignore[arg-type]

    async def observe(
        self, *facts: ContainerFact, stopping: Iterable[str] = (), silent: frozenset[str] = frozenset()
    ) -> set[str]:
        """Observe these facts and return the probes that are sent now."""
        self.looks.runtimes[NODE] = Known(facts, NODE, self.clock.now().steady)
        self.looks.version += 1
        return await self.aim(stopping, silent)

    async def aim(self, stopping: Iterable[str] = (), silent: frozenset[str] = frozenset()) -> set[str]:
        await self.probing.retarget(self.desired, stopping, silent)
        return {name for _, name in self.prober.targets}

    def report(self, fact: ContainerFact, name: str, value: ProbeValue) -> tuple[bool, bool]:
        now = self.clock.now().steady
        self.prober.results[fact.generation, name] = ProbeFact(value, value, 1, 1, now, now, 15 * SECOND)
        return self.probing.read()


def all_three(root: Path) -> World:
    return World(root, startup=HTTP, liveness=HTTP, readiness=HTTP)


async def test_startup_delays_the_other_probes_and_runs_once(tmp_path: Path) -> None:
    world = all_three(tmp_path)
    fact = world.container()
    assert await world.observe(fact) == {"startup"}
    assert world.report(fact, "startup", PASS) == (True, False)
    assert await world.aim() == {"liveness", "readiness"}
    verdict = world.probing.verdicts[fact.generation].startup
    assert verdict is not None
    assert verdict.valid_for == FOREVER


async def test_the_initial_delay_counts_from_the_start_of_the_container(
    tmp_path: Path,
) -> None:
    world = all_three(tmp_path)
    fact = world.container()
    await world.observe(fact)
    world.clock.advance(120 * SECOND)
    world.report(fact, "startup", PASS)
    assert await world.aim() == {"liveness", "readiness"}
    assert {target.started for target in world.prober.targets.values()} == {START}


async def test_a_new_generation_starts_without_verdicts(tmp_path: Path) -> None:
    world = all_three(tmp_path)
    fact = world.container()
    await world.observe(fact)
    world.report(fact, "startup", PASS)
    restarted = replace(fact, started_at=2)
    assert await world.observe(restarted) == {"startup"}
    assert world.probing.verdicts == {restarted.generation: Probes()}


async def test_a_result_of_an_old_generation_does_not_count(tmp_path: Path) -> None:
    world = World(tmp_path, liveness=HTTP)
    fact = world.container()
    await world.observe(fact)
    restarted = replace(fact, started_at=2)
    await world.observe(restarted)
    assert world.report(fact, "liveness", FAIL) == (False, False)
    assert world.probing.verdicts == {restarted.generation: Probes()}


@pytest.mark.parametrize("state", [state for state in ContainerState if state is not ContainerState.RUNNING])
async def test_only_running_containers_are_probed(tmp_path: Path, state: ContainerState) -> None:
    world = World(tmp_path, liveness=HTTP)
    assert await world.observe(world.container()) == {"liveness"}
    assert await world.observe(world.container(state=state)) == set()


async def test_a_stopping_container_is_not_probed_and_keeps_its_verdict(tmp_path: Path) -> None:
    world = World(tmp_path, liveness=HTTP)
    fact = world.container()
    await world.observe(fact)
    world.report(fact, "liveness", PASS)
    assert await world.observe(fact, stopping=("web-0",)) == set()
    assert world.probing.verdicts[fact.generation].liveness is not None


@pytest.mark.parametrize("silent", [frozenset({"workload/web"}), frozenset({EVERYTHING})])
async def test_suspended_probes_are_not_sent_until_they_are_resumed(tmp_path: Path, silent: frozenset[str]) -> None:
    world = World(tmp_path, liveness=HTTP, readiness=Probe(ProbeKind.RUNTIME))
    fact = world.container()
    assert await world.observe(fact, silent=silent) == set()
    assert world.probing.verdicts[fact.generation].readiness is None
    assert await world.aim(silent=frozenset({"workload/other"})) == {"liveness"}


async def test_generations_of_an_unreachable_node_keep_their_verdicts(tmp_path: Path) -> None:
    world = World(tmp_path, liveness=HTTP)
    fact = world.container()
    await world.observe(fact)
    world.report(fact, "liveness", PASS)
    world.looks.runtimes[NODE] = Unknown("no answer", NODE, START)
    world.looks.version += 1
    await world.aim()
    assert world.report(fact, "liveness", FAIL) == (True, True)


async def test_a_generation_that_ended_elsewhere_loses_its_verdicts(tmp_path: Path) -> None:
    """Also while another node does not answer."""
    world = World(tmp_path, liveness=HTTP)
    fact = world.container()
    other = replace(fact, node="other", id="c2")
    world.looks.runtimes["other"] = Known((other,), "other", START)
    await world.observe(fact)
    assert world.probing.verdicts.keys() == {fact.generation, other.generation}
    world.looks.runtimes["other"] = Unknown("no answer", "other", START)
    await world.observe()
    assert world.probing.verdicts.keys() == {other.generation}
    world.looks.runtimes["other"] = Known((), "other", START)
    await world.observe()
    assert not world.probing.verdicts


async def test_a_result_that_arrives_during_a_runtime_call_is_kept(tmp_path: Path) -> None:
    """While the runtime is asked how to run a command, another task takes the results of the prober."""
    world = World(tmp_path, liveness=Probe(ProbeKind.EXEC, command=("check",)), readiness=HTTP)
    fact = world.container()
    memory = MemoryRuntime(NODE, MemorySettings(), Context("demo", str(tmp_path)))
    world.looks.providers = Providers({NODE: memory})
    await world.observe(fact)
    relabelled = replace(fact, labels=(("changed", "yes"),))
    world.looks.runtimes[NODE] = Known((relabelled,), NODE, START)
    world.looks.version += 1
    aiming = asyncio.create_task(world.aim())
    await asyncio.sleep(0)
    world.report(fact, "readiness", PASS)
    await aiming
    verdict = world.probing.verdicts[fact.generation].readiness
    assert verdict is not None
    assert verdict.value is PASS


async def test_the_health_check_of_the_runtime_is_read_and_never_sent(tmp_path: Path) -> None:
    world = World(tmp_path, startup=Probe(ProbeKind.RUNTIME), liveness=Probe(ProbeKind.RUNTIME), readiness=HTTP)
    healthy = RuntimeHealth(PASS, 0, START, 30 * SECOND)
    fact = world.container(running_since=START - SECOND)
    assert await world.observe(replace(fact, health=healthy._replace(value=UNKNOWN))) == set()
    assert await world.observe(replace(fact, health=healthy)) == {"readiness"}
    assert await world.observe(replace(fact, health=healthy._replace(value=FAIL, streak=3))) == {"readiness"}
    verdicts = world.probing.verdicts[fact.generation]
    assert verdicts.startup is not None
    assert verdicts.startup.value is PASS
    assert verdicts.liveness is not None
    assert (verdicts.liveness.value, verdicts.liveness.streak) == (FAIL, 3)


async def test_a_container_without_an_address_is_probed_at_its_published_port(tmp_path: Path) -> None:
    world = World(tmp_path, liveness=HTTP)
    published = (PortFact(8080, "192.0.2.1", 80),)
    await world.observe(world.container(published=published))
    (target,) = world.prober.targets.values()
    assert (target.address, target.port, target.published) == ("10.0.0.1", 8080, False)
    await world.observe(world.container(published=published, address="", ports=()))
    (target,) = world.prober.targets.values()
    assert (target.address, target.port, target.published) == ("192.0.2.1", 80, True)


def with_secret(path: Path) -> Probe:
    return replace(HTTP, headers=(("Authorization", SecretSource(file=str(path))),))


def write(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def problem(world: World) -> str:
    (target,) = world.prober.targets.values()
    return target.inputs.problem


def revealed(world: World) -> list[str]:
    (target,) = world.prober.targets.values()
    return [secret.reveal() for secret in target.inputs.secrets]


async def later(world: World, by: int) -> None:
    world.clock.advance(by)
    await world.aim()
    for _ in range(5):
        await asyncio.sleep(0)  # reading runs beside the ticks
    await world.aim()


async def test_a_secret_is_read_before_the_first_probe_and_again_within_a_minute(tmp_path: Path) -> None:
    file = tmp_path / "token"
    write(file, "one\n")
    world = World(tmp_path, liveness=with_secret(file))
    await world.observe(world.container())
    assert revealed(world) == ["one"]
    write(file, "two\n")
    await world.aim()
    assert revealed(world) == ["one"]
    await later(world, REFRESH)
    assert revealed(world) == ["two"]
    assert REFRESH <= 30 * SECOND


async def test_an_unresolvable_secret_is_a_problem_and_is_retried(tmp_path: Path) -> None:
    file = tmp_path / "token"
    world = World(tmp_path, liveness=with_secret(file))
    await world.observe(world.container())
    assert "does not exist" in problem(world)
    write(file, "secret", mode=0o644)
    await later(world, RETRY)
    assert "is world-readable" in problem(world)
    write(file, "secret")
    await later(world, RETRY)
    assert revealed(world) == ["secret"]


async def test_an_invalid_variable_name_is_a_problem(tmp_path: Path) -> None:
    world = World(tmp_path, liveness=replace(HTTP, headers=(("A", SecretSource(env="no.such-name")),)))
    await world.observe(world.container())
    assert problem(world)


def verified(path: str) -> Probe:
    return replace(HTTP, scheme="HTTPS", tls=ProbeTLS(True, path))


async def test_authorities_are_read_from_the_manifest_directory(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki/ca.pem").write_text(CA_TEXT)
    world = World(tmp_path, liveness=verified("pki/ca.pem"))
    await world.observe(world.container())
    (target,) = world.prober.targets.values()
    assert target.inputs.ca == CA_TEXT


async def test_authorities_outside_the_manifest_directory_are_not_read(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "outside.pem").write_text(CA_TEXT)
    (tree / "ca.pem").symlink_to(tmp_path / "outside.pem")
    world = World(tree, liveness=verified("ca.pem"))
    await world.observe(world.container())
    assert "outside of the manifests' directory" in problem(world)


@pytest.mark.parametrize(("text", "words"), [(None, "does not exist"), ("hello", "contains no certificate")])
async def test_a_bad_file_of_authorities_is_a_problem(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "ca.pem").write_text(text)
    world = World(tmp_path, liveness=verified("ca.pem"))
    await world.observe(world.container())
    assert words in problem(world)


# --- what an earlier manifest asked -------------------------------------------------------------------------------


def known(world: World, *, readiness: Probe | None, port: int = 8080) -> Ledger:
    """A ledger with what the revision of the test's container declared before."""
    (workload,) = world.desired.workloads
    spec = Spec(readiness=readiness, grace=workload.template.grace, services=(("service/web", ServicePort(port)),))
    return Ledger(specs={revision_key(workload.key, workload.template.revision): spec})


async def aimed(world: World, ledger: Ledger, *facts: ContainerFact) -> dict[str, Target]:
    world.looks.runtimes[NODE] = Known(facts, NODE, world.clock.now().steady)
    world.looks.version += 1
    await world.probing.retarget(world.desired, (), frozenset(), ledger)
    return {name: target for (_, name), target in world.prober.targets.items()}


async def test_a_changed_probe_is_tried_beside_the_one_that_decides(tmp_path: Path) -> None:
    world = World(tmp_path, readiness=replace(HTTP, path="/new"))
    targets = await aimed(world, known(world, readiness=HTTP), world.container())
    assert {name: target.probe.path for name, target in targets.items()} == {
        "readiness": HTTP.path,
        "trial of readiness": "/new",
    }
    assert world.probing.unanswered()


async def test_the_verdict_of_a_trial_stays_when_the_trial_takes_over(tmp_path: Path) -> None:
    world = World(tmp_path, readiness=replace(HTTP, path="/new"))
    fact = world.container()
    await aimed(world, known(world, readiness=HTTP), fact)
    assert world.report(fact, "readiness", FAIL) == (True, True)
    assert world.report(fact, "trial of readiness", PASS) == (True, False)
    answer = world.probing.trials[fact.generation]["readiness"]
    assert (answer.trial.path, answer.fact.value) == ("/new", PASS)
    assert world.report(fact, "trial of readiness", FAIL) == (False, False)  # it has passed once
    targets = await aimed(world, known(world, readiness=replace(HTTP, path="/new")), fact)
    assert set(targets) == {"readiness"}
    verdict = world.probing.verdicts[fact.generation].readiness
    assert verdict is not None
    assert verdict.value is PASS
    assert not world.probing.trials.get(fact.generation)


async def test_a_superseded_container_is_asked_what_its_revision_says(tmp_path: Path) -> None:
    world = World(tmp_path, readiness=replace(HTTP, path="/new"))
    old = world.container(mark=Mark(world.desired.instance.id, "web", 0, "old"))
    ledger = Ledger(specs={revision_key("workload/web", "old"): Spec(liveness=HTTP)})
    targets = await aimed(world, ledger, old)
    assert {name: target.probe.path for name, target in targets.items()} == {"liveness": HTTP.path}
    assert await aimed(world, Ledger(), old) == {}
    assert not world.probing.unanswered()


async def test_another_port_of_a_service_is_tried_by_a_connection(tmp_path: Path) -> None:
    world = World(tmp_path)
    fact = world.container()
    ports = (*fact.ports, PortFact(8081, "10.0.0.1", 18081))
    targets = await aimed(world, known(world, readiness=None, port=8081), replace(fact, ports=ports))
    (target,) = targets.values()
    assert (target.name, target.probe.kind, target.address, target.port) == (
        "trial of service service/web",
        ProbeKind.TCP,
        "10.0.0.1",
        8080,
    )
    targets = await aimed(world, known(world, readiness=None, port=9090), replace(fact, ports=()))
    assert targets == {}


async def test_trials_wait_for_the_start_and_exec_ones_never_run_in_a_plan(tmp_path: Path) -> None:
    command = Probe(ProbeKind.EXEC, command=("true",))
    world = World(tmp_path, startup=HTTP, readiness=command)
    fact = world.container()
    (workload,) = world.desired.workloads
    spec = Spec(startup=HTTP, readiness=HTTP, services=(("service/web", ServicePort(8080)),))
    ledger = Ledger(specs={revision_key(workload.key, workload.template.revision): spec})
    assert set(await aimed(world, ledger, fact)) == {"startup"}
    world.report(fact, "startup", PASS)
    world.probing.network_only = True
    assert set(await aimed(world, ledger, fact)) == {"readiness"}


async def test_the_life_of_a_probe_is_recorded_with_its_settings(tmp_path):
    world = World(tmp_path, readiness=replace(HTTP, path="/readyz", headers=(("X-Key", "hidden"),)))
    fact = world.container()
    await world.observe(fact)
    (started,) = world.probing.log.take()
    assert started.object == "workload/web/0"
    assert started.action == "readiness of web-0"
    assert started.outcome == "started"
    assert started.message == ("GET http://10.0.0.1:8080/readyz every 5s, timeout 1s, fails after 2, passes after 1")
    await world.observe(fact)
    assert world.probing.log.take() == []

    (workload,) = world.desired.workloads
    container = workload.template.container
    slower = replace(container, readiness=replace(container.readiness, period=7 * SECOND))
    template = replace(workload.template, container=slower)
    world.desired = replace(world.desired, revision="r2", workloads=(replace(workload, template=template),))
    await world.observe(fact)
    (changed,) = world.probing.log.take()
    assert (changed.outcome, changed.message.partition("; before: ")[2]) == ("changed", started.message)
    assert " every 7s," in changed.message

    await world.observe(fact, stopping=["web-0"])
    (ended,) = world.probing.log.take()
    assert (ended.object, ended.action, ended.outcome) == ("workload/web/0", "readiness of web-0", "ended")
    assert world.probing.log.take() == []


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        (Probe(ProbeKind.TCP, port=8080), "tcpSocket 10.0.0.1:8080 every 10s"),
        (Probe(ProbeKind.GRPC, port=8080, service="shop"), "grpc 10.0.0.1:8080 shop every 10s"),
        (
            Probe(ProbeKind.HTTP, port=8080, scheme="HTTPS", initial_delay=3 * SECOND),
            "GET https://10.0.0.1:8080/ every 10s",
        ),
        (Probe(ProbeKind.EXEC, command=("check", "x" * 200)), f"exec check {'x' * 74}... every 10s"),
    ],
)
def test_the_settings_of_every_kind_of_probe_are_text(tmp_path, probe, text):
    fact = World(tmp_path).container()
    shown = settings(Target(fact.generation, "liveness", probe, "10.0.0.1", probe.port, START))
    assert shown.startswith(f"{text}, timeout 1s")
    assert ("first after 3s" in shown) is bool(probe.initial_delay)
