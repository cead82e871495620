"""Failures on a real engine: each has a clear error with a next step, and does no harm."""

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from manifests.values.desired import Port
from manifests.values.pod import Mount, VolumeKind
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer, UpdateContainer
from providers.errors import Foreign, Gone, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import ContainerState, ExitCause, Mark, container_name, mark_labels
from providers.runtime.docker.client import EngineClient
from providers.runtime.docker.runtime import DockerRuntime, DockerSettings
from providers.spi import Context
from providers.testing.checks import wait_until
from tests.free_ports import free_port
from tests.providers.runtime.docker.bench import GRACE, Bench
from tests.providers.runtime.docker.engine import container, template


def test_a_port_in_use_is_named_and_the_container_can_be_started_later(engine: Bench) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        fact = engine.create(template(container(ports=(Port("http", 80, port, "127.0.0.1"),))))
        with pytest.raises(ProviderError, match=r"already in use|already allocated") as caught:
            engine.start(fact)
        assert "hostPort" in caught.value.next_step
    assert engine.start(engine.fact(fact.name)).state is ContainerState.RUNNING


def test_a_program_that_the_image_lacks_is_named(engine: Bench) -> None:
    fact = engine.create(template(container("web", "/bin/no-such-program")))
    with pytest.raises(ProviderError, match="no-such-program") as caught:
        engine.start(fact)
    assert "correct the command" in caught.value.next_step
    assert engine.state(fact.name) is ContainerState.CREATED


def test_a_failed_start_shows_the_last_output(engine: Bench, tmp_path: Path) -> None:
    mounted = tmp_path / "here"
    mounted.mkdir()
    mount = Mount(VolumeKind.BIND, str(mounted), "/bound")
    fact = engine.run(template(container("web", "/bin/sh", "-c", "echo the last words; exit 3", mounts=(mount,))))
    wait_until(lambda: engine.state(fact.name) is ContainerState.EXITED, "it ended")
    ended = engine.fact(fact.name)
    assert (ended.exit_code, ended.exit_cause) == (3, ExitCause.EXITED)
    mounted.rmdir()
    with pytest.raises(ProviderError, match="last output: the last words"):
        engine.start(ended)


def test_a_bind_mount_must_exist(engine: Bench) -> None:
    mount = Mount(VolumeKind.BIND, "/no/such/directory", "/data")
    with pytest.raises(Rejected, match="create that directory on the node"):
        engine.create(template(container(mounts=(mount,))))
    assert not Path("/no").exists()


@pytest.mark.server("dockerd")
def test_fields_that_the_engine_refuses_are_rejected(bench: Bench) -> None:
    for wrong in (
        container(log_driver="json-file", log_options=(("no-such-option", "1"),)),
        container(host_config='{"ShmSize": -1}'),
    ):
        with pytest.raises(Rejected):
            bench.create(template(wrong))


def test_a_foreign_container_under_a_replicas_name_is_left_alone(engine: Bench) -> None:
    action = engine.creation()
    engine.api.create(action.name)
    try:
        with pytest.raises(Foreign, match=r"(docker|podman) rename"):
            engine.runtime.perform(action)
        fact = engine.fact(action.name)
        assert (fact.mark, fact.foreign_mark, fact.state) == (None, False, ContainerState.CREATED)
    finally:
        engine.api.remove(action.name)


def test_an_id_is_not_taken_for_a_name(engine: Bench) -> None:
    fact = engine.run()
    assert engine.runtime.observe([fact.id[:12]]) == ()
    assert engine.runtime.observe([fact.id]) == ()


def test_labels_inherited_from_an_image_make_no_replica(engine: Bench) -> None:
    fact = engine.create()
    engine.api.link.post("/commit", "commit", {}, container=fact.name, repo="reconciler-test/copy", tag="1")
    name = f"{engine.instance}-copy"
    engine.api.create(name, image="reconciler-test/copy:1")
    try:
        stranger = engine.looked(name)
        assert (stranger.mark, stranger.foreign_mark) == (None, True)
    finally:
        engine.api.remove(name)
        engine.api.link.delete("/images/reconciler-test/copy:1", "image", force="1")


@pytest.mark.server("dockerd")
def test_a_container_removed_by_hand_is_gone(bench: Bench) -> None:
    fact = bench.run()
    bench.api.remove(fact.name)
    bench.runtime.perform(StopContainer("local", fact.name, fact.generation, GRACE))
    bench.runtime.perform(RemoveContainer("local", fact.name, fact.generation))
    for action in (
        StartContainer("local", fact.name, fact.generation),
        UpdateContainer("local", fact.name, fact.generation, fact.live),
    ):
        with pytest.raises(Gone, match="retried automatically"):
            bench.runtime.perform(action)
    with pytest.raises(Gone):
        bench.runtime.exec_target(fact.name, ("/bin/true",))
    assert fact.name not in {other.name for other in bench.runtime.observe()}


def test_a_restart_between_two_looks_is_a_new_generation(engine: Bench) -> None:
    fact = engine.run(template(container(stop_signal="SIGKILL")))
    assert engine.looked(fact.name).generation == fact.generation
    engine.api.link.post(f"/containers/{fact.name}/restart", fact.name, t="0")
    again = engine.looked(fact.name)
    assert again.state is ContainerState.RUNNING
    assert again.generation != fact.generation
    assert again == engine.fact(fact.name)


def test_many_events_between_two_looks_hide_no_restart(engine: Bench) -> None:
    fact = engine.run(template(container(stop_signal="SIGKILL")))
    engine.looked(fact.name)
    engine.api.link.post(f"/containers/{fact.name}/restart", fact.name, t="0")
    other = engine.api.create(f"{engine.instance}-noise")
    try:
        for number in range(260):
            engine.api.link.post(f"/containers/{other}/rename", "noise", name=f"{engine.instance}-noise{number % 2}")
        assert engine.looked(fact.name).generation == engine.fact(fact.name).generation != fact.generation
    finally:
        engine.api.remove(other)


def test_a_start_leaves_a_paused_container_paused(engine: Bench) -> None:
    fact = engine.run()
    engine.api.link.post(f"/containers/{fact.name}/pause", fact.name)
    assert engine.looked(fact.name).state is ContainerState.PAUSED
    assert engine.start(engine.fact(fact.name)).state is ContainerState.PAUSED
    engine.api.link.post(f"/containers/{fact.name}/unpause", fact.name)
    assert engine.looked(fact.name).state is ContainerState.RUNNING


def test_a_stop_by_hand_is_not_ours(engine: Bench) -> None:
    fact = engine.run()
    engine.api.link.post(f"/containers/{fact.name}/stop", fact.name, t="2")
    assert engine.fact(fact.name).exit_cause is ExitCause.EXITED


def test_a_container_that_ignores_its_signal_is_killed_after_the_grace(engine: Bench) -> None:
    fact = engine.run(template(container("web", "/bin/sh", "-c", "trap '' TERM; exec sleep 300")))
    stopped = engine.stop(fact, grace=1_000_000_000)
    assert (stopped.state, stopped.exit_cause, stopped.exit_code) == (
        ContainerState.EXITED, ExitCause.STOPPED_BY_US, 137,
    )  # fmt: skip


def runtime_at(path: str, tmp_path: Path) -> DockerRuntime:
    return DockerRuntime("local", DockerSettings(socket=path), Context("demo", str(tmp_path)))


def test_without_an_engine_the_error_names_the_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "none.sock")
    runtime, made = runtime_at(path, tmp_path), template()
    mark = Mark("demo", "web", 0, made.revision)
    with pytest.raises(Unreachable, match=r"none\.sock.*start the engine"):
        runtime.observe()
    with pytest.raises(Unreachable, match="start the engine"):
        runtime.perform(CreateContainer("local", container_name(mark), mark, made, "/"))
    assert "start the engine" in runtime.check()[0]
    runtime.close()


class Deaf:
    """An engine that accepts connections and never answers."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)

    def close(self) -> None:
        self._listener.close()


def test_a_hanging_engine_is_unreachable_after_the_time_out(tmp_path: Path) -> None:
    deaf = Deaf(tmp_path / "deaf.sock")
    link = EngineClient("local", str(tmp_path / "deaf.sock"), read_seconds=0.3)
    with pytest.raises(Unreachable, match=r"has not answered|broke"):
        link.get("/info", "local")
    link.close()
    deaf.close()


class Relay:
    """A proxy to the engine that loses the answer to one kind of request after the engine has carried it out."""

    def __init__(self, path: Path, engine: str, lose: bytes) -> None:
        self._engine, self._lose = engine, lose
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=(link,), daemon=True).start()

    def _pass(self, link: socket.socket) -> None:
        losing = threading.Event()
        with link, socket.socket(socket.AF_UNIX) as engine, suppress(OSError):
            engine.connect(self._engine)
            threading.Thread(target=self._answers, args=(engine, link, losing), daemon=True).start()
            while data := link.recv(1 << 20):
                if self._lose in data.partition(b"\r\n")[0]:
                    losing.set()
                engine.sendall(data)
            engine.shutdown(socket.SHUT_RDWR)

    def _answers(self, engine: socket.socket, link: socket.socket, losing: threading.Event) -> None:
        with suppress(OSError):
            while data := engine.recv(1 << 20):
                if losing.is_set():
                    link.shutdown(socket.SHUT_RDWR)
                    return
                link.sendall(data)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_a_lost_answer_is_an_unknown_outcome_until_the_next_look(engine: Bench, tmp_path: Path) -> None:
    fact = engine.create()
    relay = Relay(tmp_path / "relay.sock", engine.socket, b"/start")
    runtime = DockerRuntime(
        "local", DockerSettings(socket=str(tmp_path / "relay.sock")), Context(engine.instance, str(tmp_path))
    )
    with pytest.raises(OutcomeUnknown, match="retried automatically"):
        runtime.perform(StartContainer("local", fact.name, fact.generation))
    runtime.close()
    relay.close()
    running = engine.fact(fact.name)
    assert running.state is ContainerState.RUNNING
    engine.runtime.perform(StartContainer("local", fact.name, fact.generation))
    assert engine.fact(fact.name).generation == running.generation


@pytest.mark.parametrize("value", ["tcp://10.0.0.1:2375", "ssh://host", "docker.sock", "https://x"])
def test_an_engine_on_another_host_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"not a unix socket of this host|not an absolute path"):
        DockerSettings(socket=value)


def test_a_broken_record_of_stops_counts_as_empty(engine: Bench) -> None:
    fact = engine.stop(engine.run())
    (engine.state_dir / "docker" / "local.stops.json").write_text('{"x": [')
    assert engine.make().observe([fact.name])[0].exit_cause in (ExitCause.SIGNALLED, ExitCause.EXITED)


def test_marks_are_written_as_labels(engine: Bench) -> None:
    fact = engine.create()
    assert fact.mark is not None
    labels = engine.api.inspect(fact.name)["Config"]["Labels"]
    assert mark_labels(fact.mark, 1).items() <= labels.items()
    assert container_name(fact.mark) == fact.name
