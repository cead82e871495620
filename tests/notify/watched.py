"""A simulated world whose ticks go to a dispatcher with senders that tests script. Nothing runs on a thread."""

import shutil
import tempfile
import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path

from manifests.values.desired import SECOND
from manifests.values.notices import Channel, Forge, ForgeType, Informed, Topic, Webhook
from manifests.values.pod import SecretSource
from providers.errors import ProviderError
from reconciler.core.model.instant import Now
from reconciler.core.notices.model import Notice
from reconciler.forge.protocol import CommitStatus
from reconciler.notify.dispatcher import Dispatcher, Makers
from reconciler.notify.store import NoticeStore
from tests.sim.manifest import INSTANCE
from tests.sim.world import World

CHANNEL = Channel("ops", Webhook("http://127.0.0.1:1"), remind=24 * 3600 * SECOND)
ALL = replace(CHANNEL, topics=tuple(Topic))
FORGE = Forge(ForgeType.GITHUB, "https://github.com", "shop/manifests", SecretSource(env="TOKEN"))


@dataclass
class Recorder:
    """A sender, and a forge: keeps what was sent, unless `fault` is raised first. `crash` is raised after it."""

    sent: list[Notice] = field(default_factory=list)
    statuses: list[tuple[str, str, str]] = field(default_factory=list)
    tries: int = 0
    fault: ProviderError | None = None

    def send(self, notice: Notice) -> None:
        self.tries += 1
        if self.fault is not None:
            raise self.fault
        self.sent.append(notice)

    def set_status(self, commit: str, status: CommitStatus) -> None:
        self.tries += 1
        if self.fault is not None:
            raise self.fault
        self.statuses.append((commit, status.state.value, status.description))

    def close(self) -> None:
        pass

    @property
    def titles(self) -> list[str]:
        return [f"{notice.phase.value}: {notice.title}" for notice in self.sent]


class WorldClock:
    """The time of the instance, as the process of a world has it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> Now:
        assert self._world.life is not None
        return self._world.life.clock.now()


class Watched:
    """The world, and what its operators are informed of."""

    def __init__(self, world: World, channels: tuple[Channel, ...] = (CHANNEL,), forge: Forge | None = None) -> None:
        self.world, self.informed = world, Informed(channels, forge)
        self.state = Path(tempfile.mkdtemp(prefix="reconciler-notices-"))
        self.state.chmod(0o700)
        weakref.finalize(self, shutil.rmtree, self.state, ignore_errors=True)
        self.recorders = {channel.name: Recorder() for channel in channels}
        self.forge = Recorder()
        self.commit = self.newest = self.refused = ""
        self.notes: list[str] = []
        self.counts: list[tuple[str, str]] = []
        self.lose_results = False
        self.hanging: set[str] = set()
        """Channels whose calls never end."""
        self.restart()

    def restart(self) -> None:
        """Another process over the same state directory; what was not written is gone."""

        def run(call, name: str) -> None:
            if name.removeprefix("notify-") in self.hanging:
                return
            call()
            if self.lose_results:
                raise Killed

        makers = Makers(
            lambda channel, _: self.recorders[channel.name], lambda _: self.forge, run, lambda: self.refused
        )
        self.dispatcher = Dispatcher(
            NoticeStore(self.state, self.notes.append),
            INSTANCE,
            WorldClock(self.world),
            makers,
            self.notes.append,
            lambda channel, outcome: self.counts.append((channel, outcome)),
        )

    @property
    def ops(self) -> Recorder:
        return self.recorders["ops"]

    def run(self, duration: int, every: int = 5 * SECOND) -> None:
        """Let time pass, with a step of the dispatcher after each `every` ns."""
        for _ in range(duration // every):
            self.world.run(every)
            self.step()

    def step(self) -> None:
        """Two passes over the last tick: the second one takes the results of the first."""
        assert self.world.monitoring is not None
        tick = self.world.monitoring.last
        if tick is not None:
            instance = replace(tick.desired.instance, informed=self.informed)
            self.dispatcher.tick = tick._replace(
                desired=replace(tick.desired, instance=instance), commit=self.commit or tick.commit, newest=self.newest
            )
        self.dispatcher.step()
        self.dispatcher.step()


class Killed(BaseException):
    """kill -9 between a message and its record."""
