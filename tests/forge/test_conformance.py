"""The same rules for every forge: statuses, comments and merge requests, against a server that speaks its API."""

import time

import pytest

from manifests.values.notices import Forge as Settings
from manifests.values.notices import ForgeType
from manifests.values.pod import SecretSource
from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable
from reconciler.forge.connect import connect
from reconciler.forge.protocol import CommitStatus, State, marker, short
from tests.forge.fake_forge import PROJECT, TOKEN, serving

COMMIT = "a" * 40
MARK = marker("plan", "shop")


def wall() -> float:
    return 1_800_000_000.0


@pytest.fixture(params=list(ForgeType))
def repository(request, monkeypatch):
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with serving(request.param) as served:
        yield served


@pytest.fixture
def forge(repository):
    settings = Settings(repository.dialect, repository.url, PROJECT, SecretSource(env="FORGE_TOKEN"))
    client = connect(settings, time.monotonic_ns, wall)
    yield client
    client.close()


def status(state: State, text: str = "it works") -> CommitStatus:
    return CommitStatus("reconciler/shop", state, text)


def test_a_status_goes_from_pending_to_success_and_failure(forge, repository):
    for state in (State.PENDING, State.SUCCESS, State.FAILURE, State.SUPERSEDED):
        forge.set_status(COMMIT, status(state))
    assert [row["commit"] for row in repository.statuses] == [COMMIT] * 4
    assert {row["context"] for row in repository.statuses} == {"reconciler/shop"}
    assert len({row["state"] for row in repository.statuses}) == 4
    assert repository.statuses[0]["state"] == "pending"


def test_the_same_status_twice_is_no_error(forge, repository):
    forge.set_status(COMMIT, status(State.PENDING, "waits"))
    forge.set_status(COMMIT, status(State.PENDING, "waits for web"))
    assert repository.statuses[-1]["state"] == "pending"


def test_a_description_is_cut_to_one_line_of_140_characters(forge, repository):
    forge.set_status(COMMIT, status(State.FAILURE, "workload/web:\n\x1b[31m" + "the database answers nothing " * 20))
    text = repository.statuses[-1]["description"]
    assert len(text) <= 140
    assert text.startswith("workload/web: ")
    assert text.endswith(" the…")
    assert text.isprintable()


def test_a_comment_is_made_once_and_then_replaced(forge, repository):
    repository.push_request(3, COMMIT, "change")
    for number in range(5):  # the marker is on a later page
        repository.comment_by(3, f"remark {number}", "ada", 8)
    made = forge.put_comment(3, MARK, "2 steps")
    again = forge.put_comment(3, MARK, "3 steps")
    assert (made.created, again.created, made.id) == (True, False, again.id)
    ours = [comment["body"] for comment in repository.comments[3] if MARK in comment["body"]]
    assert ours == [f"{MARK}\n3 steps"]


def test_an_equal_comment_is_not_written_again(forge, repository):
    forge.put_comment(3, MARK, "2 steps")
    before = len(repository.seen)
    forge.put_comment(3, MARK, "2 steps")
    assert {method for method, *_ in repository.seen[before:]} == {"GET"}


def test_a_comment_of_another_author_with_our_marker_is_left_alone(forge, repository):
    repository.comment_by(3, f"{MARK}\nnothing to see", "mallory", 8)
    repository.comment_by(3, f"quoted:\n{MARK}\n", "reconciler-bot", 7)
    made = forge.put_comment(3, MARK, "1 removal")
    assert made.created
    assert repository.comments[3][0]["body"] == f"{MARK}\nnothing to see"
    assert repository.comments[3][-1]["body"] == f"{MARK}\n1 removal"


def test_open_requests_come_from_all_pages_with_head_and_fork(forge, repository):
    repository.push_request(5, "5" * 40, "later")
    repository.push_request(4, "4" * 40, "main", "mallory/manifests")
    repository.push_request(2, "2" * 40, "gone", None)
    found = forge.open_requests()
    assert [(request.number, request.commit, request.branch, request.fork) for request in found] == [
        (2, "2" * 40, "gone", True),
        (4, "4" * 40, "main", True),
        (5, "5" * 40, "later", False),
    ]
    assert {request.target for request in found} == {"main"}


def test_a_request_is_opened_once(forge, repository):
    opened = forge.open_request("deploy web 2", "new image", "reconciler/web", "main")
    again = forge.open_request("deploy web 2", "new image", "reconciler/web", "main")
    assert opened == again
    assert len(repository.requests) == 1


def test_a_lost_answer_is_unknown_and_may_be_repeated(forge, repository):
    repository.lost = 1
    with pytest.raises(OutcomeUnknown):
        forge.open_request("deploy web 2", "new image", "reconciler/web", "main")
    assert forge.open_request("deploy web 2", "new image", "reconciler/web", "main").branch == "reconciler/web"
    assert len(repository.requests) == 1


def test_a_spent_rate_is_waited_for_and_the_server_left_alone(forge, repository):
    repository.faults = [(429, {"message": "slow down"}, {"Retry-After": "30"})]
    with pytest.raises(Unreachable) as caught:
        forge.set_status(COMMIT, status(State.PENDING))
    assert 29e9 < caught.value.wait <= 30e9
    asked = len(repository.seen)
    with pytest.raises(Unreachable, match="asked to wait"):
        forge.set_status(COMMIT, status(State.PENDING))
    assert len(repository.seen) == asked


@pytest.mark.parametrize("prefix", ["X-RateLimit", "RateLimit"])
def test_a_reset_time_counts_where_no_retry_after_is_given(forge, repository, prefix):
    headers = {f"{prefix}-Remaining": "0", f"{prefix}-Reset": "1800000050"}
    code = 403 if prefix == "X-RateLimit" else 429
    repository.faults = [(code, {"message": "API rate limit exceeded"}, headers)]
    with pytest.raises(Unreachable) as caught:
        forge.open_requests()
    assert caught.value.wait == 50 * 10**9


def test_a_refused_token_stops_and_is_in_no_message(forge, repository):
    repository.faults = [(401, {"message": "Bad credentials"}, {})]
    with pytest.raises(Rejected, match="check the token of the forge") as caught:
        forge.open_requests()
    assert TOKEN not in str(caught.value)


def test_a_redirect_to_another_host_is_not_followed(forge, repository):
    with serving(repository.dialect) as other:
        repository.faults = [(302, {}, {"Location": f"{other.url}/api/v3/user"})]
        with pytest.raises(Rejected, match="redirect"):
            forge.open_requests()
        assert other.seen == []


@pytest.mark.parametrize("body", [b"<html>sign in</html>", {"message": "no list"}, [1, 2], [{"number": "x"}], [None]])
def test_an_answer_of_another_shape_shows_nothing(forge, repository, body):
    repository.faults = [(200, body, {})]
    with pytest.raises(ProviderError):
        forge.open_requests()


def test_an_answer_without_end_is_bounded(forge, repository):
    repository.faults = [(200, b"[" + b" " * (17 * 1024 * 1024), {})]
    with pytest.raises(Unreachable, match="octets"):
        forge.open_requests()


def test_a_list_without_end_is_bounded(forge, repository):
    repository.push_request(1, COMMIT, "one")
    repository.faults = [(200, repository.requests, {"Link": '</next>; rel="next"'})] * 200
    with pytest.raises(Unreachable, match="more than 100 pages"):
        forge.open_requests()


def test_a_comment_that_is_too_long_is_refused_before_it_is_sent(forge, repository):
    with pytest.raises(Rejected, match="65536"):
        forge.put_comment(3, MARK, "x" * 65_536)
    assert all(method == "GET" for method, *_ in repository.seen)


def test_a_dead_forge_is_unreachable(forge, repository):
    settings = Settings(repository.dialect, "http://127.0.0.1:1", PROJECT, SecretSource(env="FORGE_TOKEN"))
    with pytest.raises(Unreachable, match="no connection"):
        connect(settings, time.monotonic_ns, wall).open_requests()


def test_a_token_of_an_app_finds_its_comment_among_those_of_users(monkeypatch):
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with serving(ForgeType.GITHUB) as repository:
        repository.may_ask_for_user = False
        repository.comment_by(3, f"{MARK}\nfalse", "mallory", 8)
        settings = Settings(ForgeType.GITHUB, repository.url, PROJECT, SecretSource(env="FORGE_TOKEN"))
        forge = connect(settings, time.monotonic_ns, wall)
        made = forge.put_comment(3, MARK, "one")
        again = forge.put_comment(3, MARK, "two")
        forge.close()
    assert (made.created, again.created, made.id) == (True, False, again.id)
    assert [comment["body"] for comment in repository.comments[3]] == [f"{MARK}\nfalse", f"{MARK}\ntwo"]


def test_a_marker_cannot_end_its_html_comment():
    with pytest.raises(ValueError, match="marker"):
        marker("plan", "--> <script>")
    with pytest.raises(ValueError, match="marker"):
        marker("a--b")


def test_a_long_word_is_cut_where_no_blank_is():
    assert short("x" * 200) == "x" * 139 + "…"
    assert short("fits") == "fits"
