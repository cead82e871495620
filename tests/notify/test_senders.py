"""The channels against real servers: what arrives, what is signed, and what each refusal means."""

import logging
import socket
import threading
import time

import pytest

from manifests.values.notices import Apprise, Channel, Mail, Security, Topic, Webhook
from manifests.values.pod import SecretSource
from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.lib.secrets import on_resolve
from reconciler.core.notices.model import Notice, Phase
from reconciler.notify.mail import MailSender
from reconciler.notify.sender import make
from reconciler.notify.webhook import signature
from reconciler.shell.secrets import SECRETS
from tests.notify.servers import certificate, hook, mailbox

WALL = 1_800_000_000
NOTICE = Notice(
    "health 1 began",
    "health 1",
    Phase.BEGAN,
    Topic.HEALTH,
    "health",
    "",
    "c" * 40,
    "workload/web is not healthy",
    (("workload/web", "0 of 3 replicas are available; readiness: HTTP 503"),),
    0,
    ("run: reconcile explain workload/web",),
    ("workload/web",),
    WALL * 10**9,
    WALL * 10**9,
)
HOSTILE = NOTICE._replace(
    title="web\r\nBcc: all@example.com \x1b[31m",
    lines=(("workload/web", "<!channel> @everyone & <a href=x>\r\n.\r\nMAIL FROM:<x@y>\nX: \u202e"),),
)


def send(via: Webhook | Mail | Apprise, notice: Notice = NOTICE) -> None:
    sender = make(Channel("ops", via), "shop", time.monotonic_ns, lambda: float(WALL))
    try:
        sender.send(notice)
    finally:
        sender.close()


# --- webhook --------------------------------------------------------------------------------------------------------


def test_a_webhook_gets_json_with_stable_fields(monkeypatch):
    with hook() as served:
        send(Webhook(f"{served.url}/notices?from=shop"))
        send(Webhook(f"{served.url}/notices?from=shop"))
    (path, headers, _), _ = served.requests
    assert path == "/notices?from=shop"
    assert headers["content-type"] == "application/json"
    first, again = served.documents
    assert first == again
    assert {name: first[name] for name in ("instance", "topic", "phase", "title", "commit")} == {
        "instance": "shop",
        "topic": "health",
        "phase": "began",
        "title": "workload/web is not healthy",
        "commit": "c" * 40,
    }
    assert first["text"].startswith("[shop] workload/web is not healthy\nworkload/web: 0 of 3 replicas are available")
    assert headers["x-reconciler-delivery"] == first["id"]


def test_a_signature_covers_time_and_body(monkeypatch):
    monkeypatch.setenv("HOOK_KEY", "a-key-of-the-hook")
    monkeypatch.setenv("HOOK_TOKEN", "a-token-of-the-hook")
    with hook() as served:
        send(Webhook(served.url, None, SecretSource(env="HOOK_KEY"), SecretSource(env="HOOK_TOKEN")))
    ((_, headers, body),) = served.requests
    assert headers["authorization"] == "Bearer a-token-of-the-hook"
    assert headers["x-reconciler-timestamp"] == str(WALL)
    assert headers["x-reconciler-signature"] == signature("a-key-of-the-hook", str(WALL), body)
    assert headers["x-reconciler-signature"] != signature("a-key-of-the-hook", str(WALL), body + b" ")


def test_no_text_from_outside_becomes_a_command_of_a_chat():
    with hook() as served:
        send(Webhook(served.url), HOSTILE)
    (document,) = served.documents
    assert "<" not in document["text"]
    assert "@everyone" not in document["text"]
    assert len(document["text"].split("\n")) == 7  # title, object, next step, times and commit, and two blank lines
    assert all(c.isprintable() or c in "\n\u200b" for c in document["text"])
    assert "\n" not in document["objects"][0]["message"]


def test_no_value_of_a_secret_is_in_a_message():
    SECRETS.add("sentinel-value-of-a-secret")
    notice = NOTICE._replace(lines=(("workload/web", "readiness: HTTP 500 sentinel-value-of-a-secret"),))
    with hook() as served, mailbox() as box:
        send(Webhook(served.url), notice)
        send(letter(box.port), notice)
    assert b"sentinel-value" not in served.requests[0][2]
    assert "sentinel-value" not in box.messages[0].as_string()
    assert "readiness: HTTP 500 ***" in box.messages[0].get_content()


@pytest.mark.parametrize(
    ("status", "kind", "whole"),
    [
        (400, Rejected, False),
        (422, Rejected, False),
        (401, Rejected, True),
        (404, Rejected, True),
        (410, Rejected, True),
        (408, Unreachable, None),
        (429, Unreachable, None),
        (503, Unreachable, None),
        (500, OutcomeUnknown, None),
    ],
)
def test_a_status_says_whether_to_try_again(status, kind, whole):
    with hook() as served:
        served.answers = [(status, {"Retry-After": "7"}, b'{"error": "no"}')]
        with pytest.raises(kind) as caught:
            send(Webhook(served.url))
    assert whole is None or caught.value.whole is whole
    assert caught.value.wait == (7 * 10**9 if status in {429, 503} else 0)


def test_a_redirect_is_not_followed():
    with hook() as served, hook() as other:
        served.answers = [(307, {"Location": other.url}, b"")]
        with pytest.raises(Rejected, match="redirect"):
            send(Webhook(served.url))
        assert other.requests == []


@pytest.mark.parametrize("answer", [b"ok", b"<html>", b"{}", b""])
def test_any_text_of_a_success_is_a_success(answer):
    with hook() as served:
        served.answers = [(200, {}, answer)]
        send(Webhook(served.url))
    assert len(served.requests) == 1


def test_an_address_that_is_a_secret_is_in_no_error(monkeypatch):
    with hook() as served, on_resolve(SECRETS.add):
        monkeypatch.setenv("HOOK_URL", f"{served.url}/services/T000/B000/very-secret-part")
        send(Webhook("", SecretSource(env="HOOK_URL")))
        served.answers = [(404, {}, b"no_service")]
        with pytest.raises(Rejected) as caught:
            send(Webhook("", SecretSource(env="HOOK_URL")))
    assert served.requests[0][0] == "/services/T000/B000/very-secret-part"
    assert "very-secret-part" not in str(caught.value)
    monkeypatch.setenv("HOOK_URL", "not a url with very-secret-part")
    with pytest.raises(Rejected) as caught:
        send(Webhook("", SecretSource(env="HOOK_URL")))
    assert "very-secret-part" not in str(caught.value)


@pytest.mark.server("openssl")
def test_a_certificate_is_verified(tmp_path):
    both = certificate(tmp_path)
    with hook(both) as served:
        with pytest.raises(ProviderError, match="certificate"):
            send(Webhook(served.url))
        send(Webhook(served.url, ca_file=str(tmp_path / "cert.pem")))
    assert len(served.requests) == 1


# --- mail -----------------------------------------------------------------------------------------------------------


def letter(port: int, security: Security = Security.NONE, **fields) -> Mail:
    return Mail("127.0.0.1", port, security, "reconcile@example.com", ("ops@example.com", "b@example.com"), **fields)


def test_a_mail_is_plain_text_with_a_stable_id():
    with mailbox() as box:
        send(letter(box.port))
        send(letter(box.port))
    first, again = box.messages
    assert first["Subject"] == "[shop] workload/web is not healthy"
    assert (first["To"], first["Auto-Submitted"]) == ("ops@example.com, b@example.com", "auto-generated")
    assert first.get_content_type() == "text/plain"
    assert "next step: run: reconcile explain workload/web" in first.get_content()
    assert first["Message-ID"] == again["Message-ID"]
    assert box.envelopes[0] == ("reconcile@example.com", ["ops@example.com", "b@example.com"])


def test_no_text_from_outside_becomes_a_header_or_a_second_mail():
    with mailbox() as box:
        send(letter(box.port), HOSTILE)
    (message,) = box.messages
    assert message["Bcc"] is None
    assert "\\r\\nBcc: all@example.com" in message["Subject"]
    assert "\\r\\n.\\r\\nMAIL FROM" in message.get_content()


@pytest.mark.server("openssl")
@pytest.mark.parametrize("security", [Security.STARTTLS, Security.TLS])
def test_a_mail_is_encrypted_and_logged_in_as_declared(tmp_path, monkeypatch, security):
    both = certificate(tmp_path)
    monkeypatch.setenv("MAIL_PASSWORD", "a-password-of-the-box")
    fields = {"username": "me", "password": SecretSource(env="MAIL_PASSWORD"), "ca_file": str(tmp_path / "cert.pem")}
    with mailbox(both, implicit=security is Security.TLS, password="a-password-of-the-box") as box:
        with pytest.raises(Unreachable, match="check its certificate"):
            send(letter(box.port, security))
        send(letter(box.port, security, **fields))
        assert box.encrypted == [True]
        assert box.logins == ["me"]
        monkeypatch.setenv("MAIL_PASSWORD", "another-password")
        with pytest.raises(Rejected, match="refuses to log in") as caught:
            send(letter(box.port, security, **fields))
    assert caught.value.whole
    assert "another-password" not in str(caught.value)


def test_a_server_without_starttls_gets_no_mail():
    with mailbox() as box, pytest.raises(Rejected, match="STARTTLS"):
        send(letter(box.port, Security.STARTTLS))
    assert box.messages == []


@pytest.mark.parametrize(
    ("reply", "kind", "whole"),
    [("451 try later", Unreachable, None), ("554 it looks like spam", Rejected, False)],
)
def test_an_answer_to_a_mail_says_whether_to_try_again(reply, kind, whole):
    with mailbox() as box:
        box.replies = [reply]
        with pytest.raises(kind) as caught:
            send(letter(box.port))
        assert whole is None or caught.value.whole is whole
        send(letter(box.port))
    assert len(box.messages) == 1


def test_a_recipient_that_is_refused_does_not_stop_the_others():
    with mailbox() as box:
        box.refused = {"b@example.com"}
        send(letter(box.port))
        assert [to for _, to in box.envelopes] == [["ops@example.com"]]
        box.refused = {"ops@example.com", "b@example.com"}
        with pytest.raises(Rejected, match="refuses every recipient"):
            send(letter(box.port))


def test_a_password_beyond_ascii_is_refused_and_not_shown(monkeypatch):
    monkeypatch.setenv("MAIL_PASSWORD", "pässword-of-the-box")
    with mailbox() as box, pytest.raises(Rejected, match="ASCII") as caught:
        send(letter(box.port, username="me", password=SecretSource(env="MAIL_PASSWORD")))
    assert "ssword-of" not in str(caught.value)


def test_a_server_that_is_silent_is_left_at_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(Unreachable):
        MailSender("ops", letter(listener.getsockname()[1]), "shop", timeout=0.5).send(NOTICE)


@pytest.mark.parametrize("greeting", [b"220 hello\r\n", b""])
def test_a_server_that_talks_without_end_is_left_at_the_deadline(greeting):
    ended = threading.Event()

    def talk(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(greeting)
            while not ended.wait(0.05):
                try:
                    connection.sendall(b"250-more\r\n" if greeting else b"220-more\r\n")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk, args=(listener,))
        thread.start()
        try:
            began = time.monotonic()
            with pytest.raises(ProviderError):
                MailSender("ops", letter(listener.getsockname()[1]), "shop", deadline=1.0).send(NOTICE)
            assert time.monotonic() - began < 15
        finally:
            ended.set()
            thread.join()


def test_a_port_without_a_server_is_unreachable():
    with pytest.raises(Unreachable, match="no mail could be sent"):
        send(letter(1))


# --- Apprise ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that Apprise imports
def test_apprise_sends_to_its_services(monkeypatch):
    pytest.importorskip("apprise")
    with hook() as served:
        monkeypatch.setenv("APPRISE_URL", served.url.replace("http://", "json://") + "/secret-path")
        send(Apprise(SecretSource(env="APPRISE_URL")))
        served.answers = [(500, {}, b"")]
        with pytest.raises(Unreachable, match="did not take"):
            send(Apprise(SecretSource(env="APPRISE_URL")))
    assert served.documents[0]["title"] == "[shop] workload/web is not healthy"
    assert served.requests[0][0] == "/secret-path"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_url_that_apprise_does_not_know_is_refused_and_not_shown(monkeypatch, caplog):
    pytest.importorskip("apprise")
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("APPRISE_URL", "nothing://very-secret-part")
    with pytest.raises(Rejected, match="does not know") as caught:
        send(Apprise(SecretSource(env="APPRISE_URL")))
    assert "very-secret-part" not in str(caught.value) + caplog.text


def test_the_end_of_a_cause_says_so():
    with hook() as served:
        send(Webhook(served.url), replace_phase(Phase.OVER))
    assert served.documents[0]["text"].startswith("[shop] over: workload/web is not healthy\n")
    assert "over at 2027-01-15 08:00:00 UTC" in served.documents[0]["text"]


def replace_phase(phase: Phase) -> Notice:
    return NOTICE._replace(phase=phase, next_steps=())
