"""A simulated world in virtual time that runs the real loop over in-memory providers. The tests of laws use it.

`World` is everything outside the program: containers, pools, zones, applications, the store and the clock. `Life` is one process:
the real `Loop` with its parts on its own event loop. A process can end by SIGTERM, or by kill -9 at any point where it touches
the world or the store; the next process starts over the same world. What happens to single nodes is in `World.hosts` (`sim/nodes.py`).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from manifests.values.desired import SECOND, Desired
from providers.actions import Action, StartContainer
from providers.facts import ContainerState, Generation
from providers.spi import Context
from providers.testing.faults import Call, Fault, faulty
from providers.testing.memory import MemoryDNS, MemoryEndpoints, MemorySettings, MemoryWorld
from providers.testing.memory_container import MemoryContainer
from providers.testing.memory_runtime import MemoryRuntime
from providers.wrappers.owned import owned
from providers.wrappers.readonly import read_only
from reconciler.core.decision import Decision
from reconciler.core.model.instant import FOREVER, Now
from reconciler.core.model.ledger_fold import Outcome
from reconciler.core.model.observed import Observed
from reconciler.core.model.source_problem import SourceProblem
from reconciler.core.model.step import Step
from reconciler.core.model.waiting_revision import HeldBack, WaitingRevision, never
from reconciler.exits import Exit
from reconciler.metrics.monitoring import Monitoring
from reconciler.shell.daemon_view import DaemonView
from reconciler.shell.host_facts import InstanceTimeProber, InstanceTimeRuntime
from reconciler.shell.instance_clock import InstanceClock
from reconciler.shell.loop import Loop
from reconciler.shell.manifest_reload import READ_SOURCE
from reconciler.shell.parts import Parts
from reconciler.shell.providers import Providers
from reconciler.shell.report.summary import Summary
from reconciler.shell.store.memory import ReadOnlyMemory
from tests.sim.apps import Apps
from tests.sim.clock import SimClock
from tests.sim.events import SimEvents
from tests.sim.manifest import INSTANCE, NAMES, POOLS, ZONE, Shop
from tests.sim.memory import SimMemory
from tests.sim.nodes import DelayedRunner, Linked, Nodes
from tests.sim.outside import Traffic, watched
from tests.sim.own_checks import OwnChecks
from tests.sim.prober import SimProber


class Killed(BaseException):
    """kill -9: no code of the process runs after it."""


class Tape:
    """A reporter that records everything.

    `broken` has the laws that were found broken since the last turn of the world: the program survives what a reporter or a provider
    raises, so the world raises them.
    """

    def __init__(self) -> None:
        self.broken: list[Exception] = []
        self.decided_count = 0
        self.last: Decision | None = None
        self.steps: list[Step] = []
        self.outcomes: list[Outcome] = []
        self.notes: list[tuple[int, str]] = []
        self.events: list[tuple[str, str, str, str, str, str]] = []
        self.watch: Callable[[Step], object] = lambda step: None
        self.listen: Callable[[Decision], object] = lambda decision: None

    def started(self, step: Step) -> None:
        try:
            self.watch(step)
        except Exception as error:  # noqa: BLE001  (as in `World._check`)
            self.broken.append(error)
        self.steps.append(step)

    def finished(self, step: Step, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def decided(self, decision: Decision, now: Now) -> None:
        self.decided_count += 1
        self.last = decision
        self.listen(decision)
        ids = [step.id for step in decision.steps]
        if len(ids) != len(set(ids)):
            self.broken.append(AssertionError(f"two steps with the same id: {ids}"))

    def event(self, kind: str, obj: str, action: str, cause: str, outcome: str, message: str, actor: str = "") -> None:
        self.events.append((kind, obj, action, cause, outcome, message))

    def note(self, text: str, *, level: int = logging.INFO) -> None:
        self.notes.append((level, text))


class Script:
    """A source that tests write to. While `broken` is set, every read fails with it; `error` is raised by every read."""

    def __init__(self) -> None:
        self.next: Desired | None = None
        self.broken = ""
        self.error: Exception | None = None
        self.held: WaitingRevision | None = None
        self.commit_at_source = ""

    def reread(self, held: HeldBack = never) -> tuple[Desired | None, tuple[str, ...]]:
        if self.error is not None:
            raise self.error
        if self.broken:
            return None, (self.broken,)
        if self.next is not None:
            waiting = WaitingRevision(self.next.revision, self.commit_at_source, self.next.guard, "a" * 12, 1)
            self.held = waiting if held(waiting) else None
            if self.held is not None:
                return None, ()
        fresh, self.next = self.next, None
        return fresh, ("a new revision",) if fresh is not None else ()

    def commit(self) -> str:
        return ""

    def newest(self) -> str:
        return ""

    def problem(self) -> SourceProblem | None:
        return SourceProblem("b" * 64, "", self.broken, 1, "a" * 64, 1, 1) if self.broken else None

    def waiting(self) -> WaitingRevision | None:
        return self.held

    def same(self) -> bool:
        return not self.broken

    def news(self) -> tuple[str, ...]:
        return ()

    def due_in(self) -> int:
        return READ_SOURCE

    def hurry(self) -> None:
        """It is read whenever the loop asks."""

    def close(self) -> None:
        """Nothing waits."""


class World:
    """Everything outside of the program, and its current process. `prober` is the kind of its probe engine."""

    prober: type[SimProber] = SimProber

    def __init__(self, shop: Shop, nodes: tuple[str, ...] = ("node-a",)) -> None:
        self.shop, self.nodes = shop, nodes
        self.clock = SimClock()
        self.outside = MemoryWorld(lambda: self.clock.now().steady, lambda: self.clock.now().wall)
        self.apps = Apps()
        self.own_checks: OwnChecks | None = None
        self.memory = SimMemory(lambda: self.clock.now().steady)
        self.memory.begin(self.clock)
        self._earlier = -self.clock.now().steady
        self.tape = Tape()
        self.source = Script()
        self.checks: list[Callable[[Action], None]] = []
        self.traffic = Traffic(lambda: self.clock.now().steady, self.snapshot, self._check)
        self.faults: dict[str, list[Fault]] = {}
        context = Context(INSTANCE, "/nowhere")
        settings = MemorySettings()
        self.outside.nodes.update((node, {}) for node in nodes)
        self.runtimes = {node: MemoryRuntime(node, settings, context, self.outside) for node in nodes}
        self.hosts = Nodes(self.outside, self.apps, self.runtimes, lambda: self.clock.now().steady)
        self.pools = MemoryEndpoints(POOLS, settings, context, self.outside)
        self.zones = MemoryDNS(NAMES, settings, context, self.outside)
        self.life: Life | None = None
        self.monitored = False
        self.monitoring: Monitoring | None = None
        self.kill_in = -1
        self.cut = False
        self.points = 0
        self.lives = 0
        self.probes_made = 0
        """The probes of the last `observe_once`."""

    # --- reading ------------------------------------------------------------------------------------------

    def now(self) -> Now:
        """The time of the instance, while a process runs."""
        assert self.life is not None
        return self.life.clock.now()

    def true_time(self) -> int:
        """The time that really passed since the beginning (ns), whatever the clocks of hosts say."""
        return self._earlier + self.clock.now().steady

    @property
    def runtime(self) -> MemoryRuntime:
        return self.runtimes[self.nodes[0]]

    def containers(self) -> dict[str, MemoryContainer]:
        """All containers of all nodes by name; of several with one name, that of the last node."""
        return {name: item for node in self.outside.nodes.values() for name, item in node.items()}

    def placed(self) -> list[tuple[str, MemoryContainer]]:
        """All containers with their nodes."""
        return [(node, item) for node, of in self.outside.nodes.items() for item in of.values()]

    def running(self) -> list[str]:
        return sorted(name for name, item in self.containers().items() if item.state is ContainerState.RUNNING)

    def generation(self, name: str) -> Generation:
        return self.containers()[name].generation

    def weights(self, pool: str = "web") -> dict[str, int]:
        """The weights of owned members by container."""
        members = self.outside.pools.get(POOLS, {}).get(pool, {})
        return {member.name: member.weight for member in members.values() if member.owner == INSTANCE}

    def published(self, host: str = "web.example.test.") -> tuple[str, ...]:
        zone = self.outside.zones.get(NAMES, {}).get(ZONE)
        if zone is None:
            return ()
        return tuple(v for k, r in sorted(zone.records.items()) if k.name == host and k.type == "A" for v in r.values)

    def snapshot(self) -> object:
        """The whole world as a value, to see whether a write changed it."""
        return (
            [(n, c.state, c.started_at) for node in self.outside.nodes.values() for n, c in sorted(node.items())],
            [
                (p, e, m.weight, m.name, m.owner)
                for of in self.outside.pools.values()
                for p, ms in of.items()
                for e, m in ms.items()
            ],
            [(z, k, r) for of in self.outside.zones.values() for z, s in of.items() for k, r in s.records.items()],
        )

    def _check(self, action: Action) -> None:
        """Run all checks after a write. The program survives whatever a call raises, so a broken law is kept, and raised in `run`."""
        for check in self.checks:
            try:
                check(action)
            except Exception as error:  # noqa: BLE001  (also a mistake in a check)
                self.tape.broken.append(error)

    def _raise_broken(self) -> None:
        broken, self.tape.broken = self.tape.broken, []
        if broken:
            raise broken[0]

    # --- events -------------------------------------------------------------------------------------

    def push(self, shop: Shop) -> None:
        """A new revision of the source."""
        self.shop = shop
        self.source.next = shop.desired()

    def fail_next(self, provider: str, *faults: Fault) -> None:
        """Make the next writes of this provider fail with these faults."""
        self.faults.setdefault(provider, []).extend(faults)

    def start_by_hand(self, name: str) -> None:
        """An operator starts a container without the program."""
        for node, runtime in self.runtimes.items():
            if name in self.outside.nodes.get(node, {}):
                runtime.perform(StartContainer(node, name, self.outside.nodes[node][name].generation))

    def next_event(self) -> int:
        """The instant of the next probe, check of the balancer, or crash."""
        soonest = self.life.prober.next_due() if self.life is not None else FOREVER
        soonest = min(soonest, self.memory.disk.next_due())
        if self.own_checks is not None:
            soonest = min(soonest, self.own_checks.due)
        if self.apps.crash_after:
            soonest = min([soonest, *(at for at, _, _ in self._crashes())])
        return soonest

    def _crashes(self) -> list[tuple[int, str, str]]:
        """The next crash of each running container that crashes: instant, node and name."""
        after = self.apps.crash_after
        return [
            (item.running_since + after[item.name], node, item.name)
            for node, item in self.placed()
            if item.name in after and item.up
        ]

    def happen(self) -> None:
        """Make everything happen that is due now."""
        now = self.clock.now().steady
        self.memory.disk.happen()
        for at, node, name in self._crashes() if self.apps.crash_after else ():
            if at <= now:
                self.runtimes[node].exit(name)
        if self.own_checks is not None:
            self.own_checks.pump(now)
        if self.life is not None:
            self.life.prober.pump(now)

    def reboot_host(self) -> None:
        """The host reboots: all containers stop, and no process of the program runs."""
        self.kill()
        self.memory.cut()
        for runtime in self.runtimes.values():
            runtime.reboot()
        until = self.true_time() + 60 * SECOND
        self.clock.reboot(f"boot-{self.lives}", downtime=60 * SECOND)
        self._earlier = until - self.clock.now().steady

    def move_to_host(self, machine: str, steady: int, step: int = 0) -> None:
        """The process ends, and the next one runs on another host, over the same store and the same containers.

        Args:
            machine: the name of the host.
            steady: how long it has been up (ns).
            step: how far its wall clock is ahead (ns).
        """
        self.kill()
        moved = steady - self.clock.now().steady
        for item in self.containers().values():
            item.running_since += moved if item.running_since else 0
            item.exited_at += moved if item.exited_at else 0
            assert min(item.running_since, item.exited_at) >= 0, "the host is younger than its containers"
            assert not item.starts
            assert item.health is None
        self._earlier -= moved
        self.clock.move(f"boot of {machine}", machine, steady, step)

    # --- the process --------------------------------------------------------------------------------------------

    def start(self) -> "Life":
        """Start a process over the stored state."""
        assert self.life is None
        self.life = Life(self)
        return self.life

    def run(self, duration: int) -> None:
        """Let time pass. A process that is killed meanwhile is replaced by a new one at once."""
        end = self.clock.now().steady + duration
        while self.clock.now().steady < end:
            life = self.life or self.start()
            alive = life.run_to(end)
            if not alive:
                self.life = None
            self._raise_broken()
            if alive:
                return

    def kill(self) -> None:
        """Kill -9 the process now."""
        if self.life is not None:
            self.life.kill()
            self.life = None

    def restart(self) -> None:
        """Stop the process with SIGTERM and start a new one."""
        if self.life is not None:
            with suppress(Killed):
                assert self.life.stop() is Exit.TERMINATED
            self.life = None
        self.start()

    def close(self) -> None:
        """End the simulation. Raises what a check raised since the last `run`."""
        self.kill()
        self._raise_broken()

    def once(self, within: int = 600 * SECOND, wait: bool = True) -> Summary:
        """One complete `--once` run."""
        self.kill()
        life = self.life = Life(self, watch=False)
        self.clock.horizon = FOREVER
        try:
            summary = life.events.run_until_complete(life.loop.once(within, wait))
        finally:
            self.kill()
        self._raise_broken()
        return summary

    def observe_once(self, view: DaemonView | None = None) -> tuple[Decision, Observed, Now]:
        """The decision of a plan: read-only providers, no writes. `view`: of the process that ran until now."""
        self.kill()
        life = self.life = Life(self, watch=False, plan=True, view=view)
        self.clock.horizon = FOREVER
        try:
            return life.events.run_until_complete(life.loop.observe_once(10 * SECOND))
        finally:
            self.probes_made = life.prober.made
            self.kill()


class Life:
    """One process of the program."""

    def __init__(self, world: World, watch: bool = True, plan: bool = False, view: DaemonView | None = None) -> None:
        self.world = world
        self.dead = False
        world.lives += 1
        host = world.clock
        self.clock = clock = world.memory.process_clock = InstanceClock(host, world.memory.clock)
        self.events = SimEvents(lambda: host.now().steady)
        host.paused, host.resumed = asyncio.Event(), asyncio.Event()
        host.next_event, host.happen = world.next_event, world.happen
        host.waiting = lambda: world.memory.disk.waiting
        host.base_tasks = 3 if watch else 1
        self.prober = world.prober(world.outside, world.apps)
        self.events.listen(lambda: self.prober.readable)
        host.idle = self.events.idle
        monitoring = Monitoring(clock, textfile=world.monitored)  # with metrics where the world is monitored
        desired = world.shop.desired()
        monitoring.history = lambda: world.memory.audit_rows
        monitoring.begin(desired)
        world.monitoring = monitoring
        memory = monitoring.memory(world.memory.handle(self.hook))
        parts = Parts(
            desired=desired,
            providers=self._providers(plan),
            providers_for=None,
            prober=InstanceTimeProber(self.prober, clock.offset),
            memory=ReadOnlyMemory(world.memory.rows) if plan else memory,
            source=None if plan else monitoring.source(world.source),
            reporter=world.tape,
            clock=clock,
            runner=DelayedRunner(host),
            view=view,
            monitor=monitoring,
            booted=clock.booted,
        )
        world.source.next = None
        self.loop = Loop(parts)
        world.memory.wake_holder = lambda: self.loop.wake.set("a command arrived")
        self.task: asyncio.Task[Exit] | None = None
        if watch:
            self.task = self.events.create_task(self.loop.watch())

    def _providers(self, plan: bool) -> Providers:
        def wrap(provider: object) -> object:
            name = provider.name  # type: ignore[attr-defined]

            def script(call: Call) -> Fault:
                left = self.world.faults.get(name)
                return left.pop(0) if left and call.verb == "perform" else Fault.NONE

            recorded = watched(provider, self.world.traffic, self.hook)
            safe = owned(faulty(recorded, script), INSTANCE)  # type: ignore[call-overload]
            if isinstance(provider, MemoryRuntime):
                safe = InstanceTimeRuntime(safe, self.clock.offset)
            return read_only(safe) if plan else safe

        world = self.world
        return Providers(
            {node: Linked(wrap(runtime), world.hosts) for node, runtime in world.runtimes.items()},
            {POOLS: wrap(world.pools)},  # type: ignore[dict-item]
            {NAMES: wrap(world.zones)},  # type: ignore[dict-item]
        )

    def hook(self, point: str) -> None:
        """A point at which this process may be killed. A killed process does nothing more."""
        if self.dead:
            raise Killed
        if point == "read":
            return
        world = self.world
        world.points += 1
        if world.kill_in >= 0:
            world.kill_in -= 1
            if world.kill_in < 0:
                self.dead = True
                if world.cut:
                    world.memory.cut()
                raise Killed

    def run_to(self, end: int) -> bool:
        """Run until the instant. False when the process was killed before it."""
        clock = self.world.clock
        clock.horizon = end
        clock.paused.clear()
        clock.resumed.set()
        task = self.task
        assert task is not None

        async def until_paused() -> None:
            waiter = asyncio.ensure_future(clock.paused.wait())
            await asyncio.wait({waiter, task}, return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
            with suppress(asyncio.CancelledError):
                await waiter

        self.events.run_until_complete(until_paused())
        if not task.done():
            return True
        try:
            task.result()
        except Killed:
            self.kill()
            return False
        raise AssertionError("the loop ended by itself")

    def stop(self) -> Exit:
        """Send SIGTERM, and wait for the end."""
        assert self.task is not None
        clock = self.world.clock
        clock.horizon = FOREVER
        clock.resumed.set()
        self.loop.stop(Exit.TERMINATED)
        try:
            return self.events.run_until_complete(self.task)
        finally:
            self.kill()

    def kill(self) -> None:
        """End at once; the process never touches the world again."""
        self.dead = True
        if not self.world.cut:
            self.world.memory.disk.killed()
        tasks = asyncio.all_tasks(self.events)
        for task in tasks:
            task.cancel()
        if tasks:
            self.events.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.events.close()
        self.prober.close()
