"""What goes wrong on a real engine: each has a clear error with a next step, and does no harm."""

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from manifests.values.desired import Port
from manifests.values.pod import Mount, VolumeKind
from providers.actions import CreateContainer, RemoveContainer, StartContainer, StopContainer, UpdateContainer
from providers.errors import Conflict, Foreign, Gone, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.facts import ContainerState, ExitCause, Mark, container_name, mark_labels
from providers.runtime.docker.client import Link
from providers.runtime.docker.runtime import DockerRuntime, DockerSettings
from providers.spi import Context
from providers.testing.checks import wait_until
from tests.free_ports import free_port
from tests.providers.runtime.docker.bench import GRACE, Bench
from tests.providers.runtime.docker.engine import container, template

# --- starting ---------------------------------------------------------------------------------------------------------


def test_a_port_in_use_is_named_and_the_container_can_be_started_later(engine: Bench) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        fact = engine.create(template(container(ports=(Port("http", 80, port, "127.0.0.1"),))))
        with pytest.raises(ProviderError, match=r"already in use|already allocated") as caught:
            engine.start(fact)
        assert "hostPort" in caught.value.next_step
    assert engine.start(engine.fact(fact.name)).state is ContainerState.RUNNING


def test_a_program_that_the_image_does_not_have_is_named(engine: Bench) -> None:
    fact = engine.create(template(container("web", "/bin/no-such-program")))
    with pytest.raises(ProviderError, match="no-such-program") as caught:
        engine.start(fact)
    assert "correct the command" in caught.value.next_step
    assert engine.state(fact.name) is ContainerState.CREATED


def test_a_failed_start_shows_the_last_lines(engine: Bench, tmp_path: Path) -> None:
    mounted = tmp_path / "here"
    mounted.mkdir()
    mount = Mount(VolumeKind.BIND, str(mounted), "/bound")
    fact = engine.run(template(container("web", "/bin/sh", "-c", "echo the last words; exit 3", mounts=(mount,))))
    wait_until(lambda: engine.state(fact.name) is ContainerState.EXITED, "it ended")
    ended = engine.fact(fact.name)
    assert (ended.exit_code, ended.exit_cause) == (3, ExitCause.EXITED)
    mounted.rmdir()
    with pytest.raises(ProviderError, match="its last lines: the last words"):
        engine.start(ended)


def test_a_bind_mount_must_exist(engine: Bench) -> None:
    mount = Mount(VolumeKind.BIND, "/no/such/directory", "/data")
    with pytest.raises(Rejected, match="create that directory on the node"):
        engine.create(template(container(mounts=(mount,))))
    assert not Path("/no").exists()


@pytest.mark.server("dockerd")
def test_the_engine_says_what_it_does_not_like(bench: Bench) -> None:
    for wrong in (
        container(log_driver="json-file", log_options=(("no-such-option", "1"),)),
        container(host_config='{"ShmSize": -1}'),
    ):
        with pytest.raises(Rejected):
            bench.create(template(wrong))


@pytest.mark.server("dockerd")
def test_a_network_that_somebody_removed_is_made_again_for_the_start(bench: Bench) -> None:
    network = bench.network()
    fact = bench.stop(bench.run(template(networks=(network,))))
    bench.api.link.delete(f"/networks/{network}", network)
    assert bench.start(fact).address


@pytest.mark.server("dockerd")
def test_a_container_that_was_taken_off_its_network_is_connected_again_while_it_runs(bench: Bench) -> None:
    first, second = bench.network(), bench.network()
    fact = bench.run(template(networks=(first, second)))
    assert bench.looked(fact.name).unjoined == ()
    bench.disconnect(fact, first)
    bench.disconnect(fact, second)
    lost = bench.looked(fact.name)
    assert (lost.state, lost.generation, lost.unjoined, lost.address) == (
        ContainerState.RUNNING,
        fact.generation,
        tuple(sorted((first, second))),
        "",
    )
    bench.api.link.delete(f"/networks/{first}", first)
    back = bench.join(lost, *lost.unjoined)
    assert (back.generation, back.unjoined) == (fact.generation, ())
    assert back.address == bench.api.inspect(fact.name)["NetworkSettings"]["Networks"][first]["IPAddress"] != ""
    assert bench.join(back, *lost.unjoined) == bench.looked(fact.name)


@pytest.mark.server("dockerd")
def test_a_container_that_was_taken_off_its_network_while_it_was_down_starts_on_it(bench: Bench) -> None:
    network = bench.network()
    fact = bench.stop(bench.run(template(networks=(network,))))
    bench.disconnect(fact, network)
    assert bench.looked(fact.name).unjoined == (network,)
    assert bench.start(bench.fact(fact.name)).address


def test_a_further_network_that_was_lost_is_joined_again_on_each_engine(engine: Bench) -> None:
    first, second = engine.network(), engine.network()
    fact = engine.run(template(networks=(first, second)))
    engine.disconnect(fact, second)
    lost = engine.looked(fact.name)
    assert (lost.unjoined, lost.address) == ((second,), fact.address)
    back = engine.join(lost, second)
    assert (back.generation, back.unjoined, back.address) == (fact.generation, (), fact.address)
    assert second in engine.api.inspect(fact.name)["NetworkSettings"]["Networks"]


@pytest.mark.server("dockerd")
def test_a_container_that_somebody_moved_to_another_network_is_not_told_under_its_address_there(bench: Bench) -> None:
    network, other = bench.network(), bench.network()
    bench.run(template(networks=(other,)), 1)
    fact = bench.run(template(networks=(network,)))
    bench.disconnect(fact, network)
    bench.api.link.post(f"/networks/{other}/connect", other, {"Container": fact.id})
    moved = bench.looked(fact.name)
    assert (moved.address, moved.unjoined) == ("", (network,))
    assert bench.join(moved, network).address == dict(bench.looked(fact.name).addresses)[network]


@pytest.mark.server("dockerd")
def test_a_network_may_be_asked_for_by_its_id(bench: Bench) -> None:
    network = bench.network()
    bench.run(template(networks=(network,)), 1)
    for number, length in ((2, 64), (3, 12)):
        asked = bench.api.link.get(f"/networks/{network}", network)["Id"][:length]
        fact = bench.run(template(networks=(asked,)), number)
        looked = bench.looked(fact.name)
        assert (looked.unjoined, looked.address) == ((), dict(looked.addresses)[network])


@pytest.mark.server("dockerd")
def test_containers_without_networks_of_their_own_lack_none(bench: Bench) -> None:
    for number, network in enumerate(("host", "none")):
        fact = bench.run(template(networks=(network,)), number)
        assert bench.looked(fact.name).unjoined == ()


# --- names and strangers ----------------------------------------------------------------------------------------------


def test_a_name_in_use_by_somebody_else_is_left_alone(engine: Bench) -> None:
    action = engine.creation()
    engine.api.create(action.name)
    try:
        with pytest.raises(Foreign, match="docker rename"):
            engine.runtime.perform(action)
        fact = engine.fact(action.name)
        assert (fact.mark, fact.foreign_mark, fact.state) == (None, False, ContainerState.CREATED)
    finally:
        engine.api.remove(action.name)


def test_an_id_is_not_taken_for_a_name(engine: Bench) -> None:
    fact = engine.run()
    assert engine.runtime.observe([fact.id[:12]]) == ()
    assert engine.runtime.observe([fact.id]) == ()


def test_labels_inherited_through_an_image_make_no_replica(engine: Bench) -> None:
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
def test_a_container_removed_by_somebody_else_is_gone(bench: Bench) -> None:
    fact = bench.run()
    bench.api.remove(fact.name)
    bench.runtime.perform(StopContainer("local", fact.name, fact.generation, GRACE))
    bench.runtime.perform(RemoveContainer("local", fact.name, fact.generation))
    for action in (
        StartContainer("local", fact.name, fact.generation),
        UpdateContainer("local", fact.name, fact.generation, fact.live),
    ):
        with pytest.raises(Gone, match="look again"):
            bench.runtime.perform(action)
    with pytest.raises(Gone):
        bench.runtime.exec_target(fact.name, ("/bin/true",))
    assert fact.name not in {one.name for one in bench.runtime.observe()}


@pytest.mark.server("dockerd")
def test_an_address_given_to_a_stranger_is_not_ours_any_more(bench: Bench) -> None:
    """An engine gives a stopped container's address to whoever starts next."""
    network = bench.network()
    made = template(container(ports=(Port("http", 80),)), networks=(network,))
    fact = bench.run(made)
    stopped = bench.stop(fact)
    assert (stopped.address, stopped.ports) == ("", ())
    stranger = f"{bench.instance}-stranger"
    bench.api.create(stranger, HostConfig={"NetworkMode": network})
    bench.api.start(stranger)
    try:
        theirs = bench.api.inspect(stranger)["NetworkSettings"]["Networks"][network]["IPAddress"]
        assert theirs == fact.address
        assert fact.address not in {one.address for one in bench.runtime.observe() if one.mark is not None}
        assert bench.looked(stranger).address == fact.address
        assert bench.start(stopped).address not in ("", theirs)
    finally:
        bench.api.remove(stranger)


# --- what the list does not show --------------------------------------------------------------------------------------


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


def test_a_paused_container_is_neither_running_nor_to_be_started(engine: Bench) -> None:
    fact = engine.run()
    engine.api.link.post(f"/containers/{fact.name}/pause", fact.name)
    assert engine.looked(fact.name).state is ContainerState.PAUSED
    assert engine.start(engine.fact(fact.name)).state is ContainerState.PAUSED
    engine.api.link.post(f"/containers/{fact.name}/unpause", fact.name)
    assert engine.looked(fact.name).state is ContainerState.RUNNING


@pytest.mark.server("dockerd")
def test_a_container_that_the_engine_restarts_is_not_started_by_us(bench: Bench) -> None:
    fact = bench.run(template(container("web", "/bin/sh", "-c", "exit 1"), restart="unless-stopped"))
    wait_until(lambda: bench.state(fact.name) is ContainerState.RESTARTING, "the engine waits before its next try")
    wait_until(lambda: _refused(bench, fact.name), "a start while the engine waits is refused")
    wait_until(lambda: _stopped(bench, fact.name), "a stop ends its restarts")
    assert bench.api.inspect(fact.name)["HostConfig"]["RestartPolicy"]["Name"] == "no"


def _refused(bench: Bench, name: str) -> bool:
    """Whether a start was refused because the engine is about to do it; it may have done so between the look and the start."""
    waiting = bench.fact(name)
    if waiting.state is not ContainerState.RESTARTING:
        return False
    try:
        bench.runtime.perform(StartContainer("local", name, waiting.generation))
    except Conflict as refusal:
        return "is restarting" in str(refusal)
    return False


def _stopped(bench: Bench, name: str) -> bool:
    """Stop whatever generation there is: each try of the engine is another one."""
    with suppress(Conflict):
        return bench.stop(bench.fact(name)).state is ContainerState.EXITED
    return False


def test_a_stop_of_a_person_is_not_ours(engine: Bench) -> None:
    fact = engine.run()
    engine.api.link.post(f"/containers/{fact.name}/stop", fact.name, t="2")
    assert engine.fact(fact.name).exit_cause is ExitCause.EXITED


def test_a_container_that_ignores_its_signal_is_killed_after_the_grace(engine: Bench) -> None:
    fact = engine.run(template(container("web", "/bin/sh", "-c", "trap '' TERM; exec sleep 300")))
    stopped = engine.stop(fact, grace=1_000_000_000)
    assert (stopped.state, stopped.exit_cause, stopped.exit_code) == (
        ContainerState.EXITED, ExitCause.STOPPED_BY_US, 137,
    )  # fmt: skip


# --- the engine itself ------------------------------------------------------------------------------------------------


def runtime_at(path: str, tmp_path: Path) -> DockerRuntime:
    return DockerRuntime("local", DockerSettings(socket=path), Context("demo", str(tmp_path)))


def test_without_an_engine_nothing_is_known_and_the_message_says_where_it_should_be(tmp_path: Path) -> None:
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
    """An engine that takes connections and never answers."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)

    def close(self) -> None:
        self._listener.close()


def test_an_engine_that_hangs_is_given_up_on_time(tmp_path: Path) -> None:
    deaf = Deaf(tmp_path / "deaf.sock")
    link = Link("local", str(tmp_path / "deaf.sock"), read_seconds=0.3)
    with pytest.raises(Unreachable, match=r"has not answered|broke"):
        link.get("/info", "local")
    link.close()
    deaf.close()


class Relay:
    """Stands between us and the engine, and loses the answer to one kind of request after it was carried out."""

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


def test_a_lost_answer_is_an_unknown_outcome_and_looking_tells(engine: Bench, tmp_path: Path) -> None:
    fact = engine.create()
    relay = Relay(tmp_path / "relay.sock", engine.socket, b"/start")
    runtime = DockerRuntime(
        "local", DockerSettings(socket=str(tmp_path / "relay.sock")), Context(engine.instance, str(tmp_path))
    )
    with pytest.raises(OutcomeUnknown, match="look again"):
        runtime.perform(StartContainer("local", fact.name, fact.generation))
    runtime.close()
    relay.close()
    running = engine.fact(fact.name)
    assert running.state is ContainerState.RUNNING
    engine.runtime.perform(StartContainer("local", fact.name, fact.generation))
    assert engine.fact(fact.name).generation == running.generation


@pytest.mark.parametrize("value", ["tcp://10.0.0.1:2375", "ssh://host", "docker.sock", "https://x"])
def test_an_engine_elsewhere_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"not a unix socket of this host|not an absolute path"):
        DockerSettings(socket=value)


def test_a_broken_record_of_stops_is_taken_for_an_empty_one(engine: Bench) -> None:
    fact = engine.stop(engine.run())
    (engine.state_dir / "docker" / "local.stops.json").write_text('{"x": [')
    assert engine.make().observe([fact.name])[0].exit_cause in (ExitCause.SIGNALLED, ExitCause.EXITED)


def test_marks_are_written_as_labels(engine: Bench) -> None:
    fact = engine.create()
    assert fact.mark is not None
    labels = engine.api.inspect(fact.name)["Config"]["Labels"]
    assert mark_labels(fact.mark, 1).items() <= labels.items()
    assert container_name(fact.mark) == fact.name
