"""Changes that reach nginx and those that do not: the test before, the check after, and lines of other owners."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from providers.actions import CutSessions, RemoveEndpoint, SetWeight
from providers.endpoints.nginx.provider import NginxEndpoints
from providers.errors import Conflict, Foreign, OutcomeUnknown, Rejected, Unreachable
from providers.facts import Endpoint, MemberFact
from providers.testing.checks import perform_one
from tests.providers.endpoints.nginx.server import Nginx, wait_until

pytestmark = pytest.mark.server("nginx")

Make = Callable[..., NginxEndpoints]
PLACE = Endpoint("192.0.2.1", 8080)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = str(self.server.server_address[1]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def apps() -> Iterator[list[Endpoint]]:
    """Two servers that answer with their port."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}) for server in servers]
    for thread in threads:
        thread.start()
    yield [Endpoint("127.0.0.1", server.server_address[1]) for server in servers]
    for one, thread in zip(servers, threads, strict=True):
        one.shutdown()
        thread.join(60)
        one.server_close()


def put(place: Endpoint, weight: int, before: int | None = None, name: str = "web-0") -> SetWeight:
    return SetWeight("edge", "web", place, name, weight, before)


def members(endpoints: NginxEndpoints, pool: str = "web") -> list[MemberFact]:
    return [member for fact in endpoints.observe([pool]) if fact.pool == pool for member in fact.members]


def file_of(nginx: Nginx) -> Path:
    return nginx.pools / "web.conf"


def reloads(nginx: Nginx) -> int:
    return (nginx.directory / "error.log").read_text().count(", reconfiguring")


def test_requests_go_where_the_weights_say_and_none_is_sent_to_weight_0(
    nginx: Nginx, pools: Make, apps: list[Endpoint]
) -> None:
    endpoints = pools()
    first, second = apps
    assert endpoints.perform([put(first, 3), put(second, 1)]).errors == (None, None)
    answers = [nginx.get("web")[1].decode() for _ in range(8)]
    assert (answers.count(str(first.port)), answers.count(str(second.port))) == (6, 2)
    perform_one(endpoints, put(first, 0, before=3))
    assert {nginx.get("web") for _ in range(4)} == {(200, str(second.port).encode())}
    perform_one(endpoints, put(second, 0, before=1))
    assert nginx.get("web")[0] == 502


def test_many_actions_are_one_reload_and_repeating_them_is_none(nginx: Nginx, pools: Make) -> None:
    endpoints, before = pools(), reloads(nginx)
    actions = [put(Endpoint("192.0.2.1", port), 5) for port in range(80, 180)]
    assert set(endpoints.perform(actions).errors) == {None}
    assert reloads(nginx) == before + 1
    assert set(endpoints.perform(actions).errors) == {None}
    perform_one(endpoints, put(Endpoint("192.0.2.1", 80), 5, name="another-name"))
    assert reloads(nginx) == before + 1
    assert len(members(endpoints)) == 100


def test_lines_of_other_owners_stay_as_they_are(nginx: Nginx, pools: Make) -> None:
    theirs = "# by hand\nupstream web {\n    least_conn; server 198.51.100.7 weight=3;  # old\n\n    keepalive 8;\n  }\ngeo $b {}\n"
    file_of(nginx).write_text(theirs)
    nginx.reload()
    endpoints, old = pools(), Endpoint("198.51.100.7", 80)
    assert members(endpoints) == [MemberFact(old, 3, False)]
    with pytest.raises(Foreign, match="belongs to no instance"):
        perform_one(endpoints, put(old, 0, before=3))
    perform_one(endpoints, put(PLACE, 10))
    text = file_of(nginx).read_text()
    assert [line for line in theirs.splitlines() if line not in text.splitlines()] == []
    perform_one(endpoints, put(PLACE, 0, before=10))
    perform_one(endpoints, RemoveEndpoint("edge", "web", PLACE, "web-0"))
    assert members(endpoints) == [MemberFact(old, 3, False)]


def test_a_pool_that_becomes_empty_still_loads_and_the_name_stays_known(nginx: Nginx, pools: Make) -> None:
    endpoints = pools()
    perform_one(endpoints, put(PLACE, 0))
    perform_one(endpoints, RemoveEndpoint("edge", "web", PLACE, "web-0"))
    assert members(endpoints) == []
    assert endpoints.observe([]) == ()
    nginx.reload()
    assert nginx.get("web")[0] == 502


def test_a_configuration_that_nginx_refuses_changes_nothing(nginx: Nginx, pools: Make) -> None:
    endpoints = pools()
    perform_one(endpoints, put(PLACE, 10))
    before, workers = file_of(nginx).read_bytes(), nginx.workers()
    nginx.write_main("no_such_directive on;")
    with pytest.raises(Unreachable, match='unknown directive "no_such_directive"'):
        perform_one(endpoints, put(PLACE, 20, before=10))
    assert (file_of(nginx).read_bytes(), nginx.workers()) == (before, workers)
    assert any("no_such_directive" in line for line in endpoints.check(["web"]))
    nginx.write_main()
    perform_one(endpoints, put(PLACE, 20, before=10))
    assert endpoints.check(["web"]) == ()
    assert [path.name for path in nginx.directory.iterdir() if "test" in path.name] == []


def test_a_configuration_that_a_tree_names_is_not_tested_by_a_check(nginx: Nginx, pools: Make) -> None:
    nginx.write_main("no_such_directive on;")
    assert any("no_such_directive" in line for line in pools().check(["web"]))
    assert pools().warnings(["web"]) == ()
    of_tree = pools(local=False)
    assert of_tree.check(["web"]) == ()
    assert "nginx -t was not run" in of_tree.warnings(["web"])[0]


def test_a_directory_that_is_not_included_is_refused_with_its_line(nginx: Nginx, pools: Make, tmp_path: Path) -> None:
    endpoints = pools(directory=str(tmp_path / "elsewhere"))
    with pytest.raises(Rejected, match=rf"include {tmp_path}/elsewhere/\*\.conf;"):
        perform_one(endpoints, put(PLACE, 10))
    assert not (tmp_path / "elsewhere" / "web.conf").exists()
    assert any("does not include" in line for line in endpoints.check(["web"]))


def test_what_was_written_and_not_loaded_is_loaded_by_the_next_step(
    nginx: Nginx, pools: Make, apps: list[Endpoint]
) -> None:
    """As after a kill -9 between writing and reloading."""
    endpoints = pools()
    first, second = apps
    assert endpoints.perform([put(first, 10), put(second, 0)]).errors == (None, None)
    text = file_of(nginx).read_text()
    killed = file_of(nginx).with_name("new")
    killed.write_text(
        text.replace(f"{first.port} weight=10", f"{first.port} down").replace(
            f"{second.port} down", f"{second.port} weight=10"
        )
    )
    # No file may seem loaded because it is of the same hundredth of a second as the worker.
    wait_until(lambda: killed.stat().st_ctime_ns + 30_000_000 < _touched(killed), "time goes on")
    killed.replace(file_of(nginx))
    again = pools()
    assert {member.endpoint: member.weight for member in members(again)} == {first: 10, second: 0}
    assert nginx.get("web") == (200, str(first.port).encode())
    with pytest.raises(Conflict, match="still has weight 10"):
        perform_one(again, RemoveEndpoint("edge", "web", first, "web-0"))
    assert again.perform([put(first, 0, before=10), put(second, 10, before=0)]).errors == (None, None)
    assert {member.endpoint: member.weight for member in members(again)} == {first: 0, second: 10}
    assert nginx.get("web") == (200, str(second.port).encode())


def test_a_file_that_is_not_loaded_is_unknown_where_nothing_says_what_is(
    nginx: Nginx, pools: Make, tmp_path: Path
) -> None:
    endpoints = pools()
    perform_one(endpoints, put(PLACE, 10))
    shutil.rmtree(tmp_path)
    file_of(nginx).touch()
    wait_until(lambda: not pools().observe(["web"])[0].members, "the file is newer than the workers")
    assert "run nginx -s reload" in pools().observe(["web"])[0].unknown
    nginx.reload()
    assert [member.weight for member in members(pools())] == [10]


def test_a_reload_changes_no_weight_and_an_edit_shows_once_loaded(nginx: Nginx, pools: Make) -> None:
    endpoints = pools()
    perform_one(endpoints, put(PLACE, 10))
    seen = {member.weight for member in members(endpoints)}
    before = nginx.workers()  # before the signal: right after it there may be new ones
    nginx.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 60
    while nginx.workers() & before:
        assert time.monotonic() < end, "the old workers do not end"
        seen |= {member.weight for member in members(endpoints)}
    assert seen == {10}
    file_of(nginx).write_text(file_of(nginx).read_text().replace("weight=10", "weight=5"))
    assert [member.weight for member in members(endpoints)] == [10]
    nginx.reload()
    assert [member.weight for member in members(endpoints)] == [5]


@pytest.fixture
def slow_nginx(nginx: Nginx) -> Iterator[Nginx]:
    """nginx with a configuration that takes some tenths of a second to load."""
    names = "".join(f"server {{ listen unix:{nginx.directory}/s; server_name ~^w{n}$; }}\n" for n in range(6_000))
    sites = nginx.directory / "sites.conf"
    sites.write_text(names)
    (nginx.directory / "nested.conf").write_text("include pools/*.conf;\ninclude sites.conf;\n")
    nginx.reload()
    yield nginx
    (nginx.directory / "nested.conf").write_text("include pools/*.conf; # those of reconciler\n")
    nginx.reload()


def test_a_slow_load_shows_the_old_weight_and_then_the_new_one(slow_nginx: Nginx, pools: Make) -> None:
    endpoints = pools()
    assert endpoints.perform([put(PLACE, 10), SetWeight("edge", "api", PLACE, "web-0", 7, None)]).errors == (None, None)
    seen: list[int] = []
    call = threading.Thread(target=perform_one, args=(endpoints, put(PLACE, 20, before=10)))
    call.start()
    while call.is_alive():
        seen += [member.weight for member in members(endpoints)]
        assert [member.weight for member in members(endpoints, "api")] == [7]
    call.join()
    seen += [member.weight for member in members(endpoints)]
    assert (sorted(seen), {seen[0], seen[-1]}) == (seen, {10, 20})


def test_a_reload_under_way_is_not_taken_for_the_one_that_loads_the_file(slow_nginx: Nginx, pools: Make) -> None:
    endpoints, before = pools(), reloads(slow_nginx)
    perform_one(endpoints, put(PLACE, 10))
    for weight in (20, 30, 40):
        slow_nginx.process.send_signal(signal.SIGHUP)
        wait_until(lambda before=before: reloads(slow_nginx) > before, "nginx begins to load")
        perform_one(endpoints, put(PLACE, weight, before=weight - 10))
        before = reloads(slow_nginx)
        assert "exiting" not in (slow_nginx.directory / "out.log").read_text()
        assert [member.weight for member in members(endpoints)] == [weight]
        # Two reloads of nginx have ended, its own and that of the operator: no SIGHUP (the lowest bit) is pending any more.
        status = Path(f"/proc/{slow_nginx.process.pid}/status").read_text()
        assert not int(status.partition("ShdPnd:\t")[2].split()[0], 16) & 1


def test_calls_that_wait_for_each_other_share_one_reload_in_an_interval(nginx: Nginx, pools: Make) -> None:
    endpoints = pools(reloadInterval="1s")
    perform_one(endpoints, put(PLACE, 10))
    before, began = reloads(nginx), time.monotonic()
    places = [Endpoint("192.0.2.2", port) for port in range(80, 88)]
    calls = [threading.Thread(target=perform_one, args=(endpoints, put(place, 5))) for place in places]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert reloads(nginx) == before + 1
    assert time.monotonic() - began > 0.5
    assert {member.endpoint for member in members(endpoints)} == {PLACE, *places}


def test_a_refused_configuration_says_when_one_of_its_files_changes(nginx: Nginx, pools: Make) -> None:
    endpoints, sites = pools(), nginx.directory / "sites"
    sites.mkdir()
    (nginx.directory / "nested.conf").write_text("include pools/*.conf; include sites/*.conf; include sites/*/on.conf;")
    broken = sites / "other.conf"

    def changed() -> int:
        return endpoints.observe(["web"])[0].changed

    def refused() -> None:
        broken.write_text("no_such_directive on;")
        with pytest.raises(Unreachable, match="no_such_directive"):
            perform_one(endpoints, put(PLACE, 10))
        assert changed() == 0

    def replace() -> None:
        new = sites / ".new"
        new.write_text("")
        new.rename(broken)

    repairs: list[Callable[[], object]] = [
        broken.unlink,
        replace,
        lambda: (sites / "more.conf").write_text(""),
        (sites / "a").mkdir,
        lambda: (sites / "a" / "on.conf").write_text(""),
        nginx.write_main,
    ]
    for repair in repairs:
        refused()
        failed = time.time_ns()
        repair()
        assert changed() > failed
        assert changed() == changed()
    broken.write_text("")
    perform_one(endpoints, put(PLACE, 10))
    assert changed() == 0
    (nginx.directory / "nested.conf").write_text("include pools/*.conf; # those of reconciler\n")
    shutil.rmtree(sites)


def _touched(path: Path) -> int:
    """The kernel's wall clock of files, now."""
    probe = path.with_name("probe")
    probe.write_text("")
    now = probe.stat().st_ctime_ns
    probe.unlink()
    return now


def test_a_reload_that_brings_no_worker_is_an_unknown_outcome_and_heals(nginx: Nginx, pools: Make) -> None:
    perform_one(pools(), put(PLACE, 10))
    endpoints = pools(timeout="3s")
    os.kill(nginx.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(OutcomeUnknown, match="it started no new worker"):
            perform_one(endpoints, put(PLACE, 20, before=10))
        assert [member.weight for member in members(endpoints)] == [10]
        before = nginx.workers()
    finally:
        os.kill(nginx.process.pid, signal.SIGCONT)
    wait_until(lambda: bool(nginx.workers()) and not nginx.workers() & before, "nginx goes on")
    assert [member.weight for member in members(endpoints)] == [20]


@pytest.mark.parametrize(
    ("text", "cause"), [(None, "there is no"), ("x", "it holds no number"), ("1", "not a master of nginx")]
)
def test_without_a_running_nginx_nothing_is_known_and_nothing_is_written(
    nginx: Nginx, pools: Make, text: str | None, cause: str
) -> None:
    endpoints = pools()
    nginx.pid_file.unlink()
    if text is not None:
        nginx.pid_file.write_text(text)
    with pytest.raises(Unreachable, match=cause):
        endpoints.observe(["web"])
    with pytest.raises(Unreachable, match=cause):
        perform_one(endpoints, put(PLACE, 10))
    assert list(nginx.pools.glob("*.conf")) == []


@pytest.mark.parametrize(
    "action",
    [
        put(Endpoint("host.test", 80), 1),
        put(Endpoint("::0001", 80), 1),
        put(Endpoint("192.0.2.1", 0), 1),
        put(Endpoint("192.0.2.1", 80), 70_000),
        put(Endpoint("127.0.0.1", 1), 1),
        SetWeight("edge", "web; }", PLACE, "web-0", 1, None),
        CutSessions("edge", "web", PLACE, "web-0"),
    ],
)
def test_what_nginx_cannot_hold_is_refused(nginx: Nginx, pools: Make, action: SetWeight | CutSessions) -> None:
    with pytest.raises(Rejected):
        perform_one(pools(), action)
    assert list(nginx.pools.glob("*.conf")) == []


def test_a_name_that_would_end_the_line_is_left_out(nginx: Nginx, pools: Make) -> None:
    endpoints = pools()
    perform_one(endpoints, put(PLACE, 10, name="x\n} evil"))
    assert "evil" not in file_of(nginx).read_text()
    assert [(member.weight, member.name) for member in members(endpoints)] == [(10, "")]
