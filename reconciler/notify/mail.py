"""The channel `smtp`: a plain-text mail over SMTP (RFC 5321), with STARTTLS or TLS. Made by `sender.py`."""

import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as POLICY

from manifests.values.notices import Mail, Security
from providers.errors import OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.lib.secrets import resolve
from reconciler.core.notices.model import Notice
from reconciler.notify import text
from reconciler.shell.clock import utc
from reconciler.shell.secrets import SECRETS

TIMEOUT = 10.0
"""Seconds of each wait for the server."""

DEADLINE = 45.0
"""Seconds of the whole conversation: then its connection is closed."""

SHOWN = 200
"""Characters of the server's own text in a message."""


class _Conversation:
    """What waits for a server, so that the deadline can end it: also while the server sends its greeting."""

    def __init__(self) -> None:
        self.sock: socket.socket | None = None

    def cut(self) -> None:
        """End it: all calls that wait for the server fail at once."""
        connection = self.sock
        with suppress(OSError):
            if connection is not None:
                connection.shutdown(socket.SHUT_RDWR)


class MailSender:
    """Implements `Sender`. Every message has a connection of its own."""

    def __init__(
        self, name: str, via: Mail, instance: str, timeout: float = TIMEOUT, deadline: float = DEADLINE
    ) -> None:
        self._timeout, self._deadline = timeout, deadline
        self._target, self._via, self._instance = f"channel {name}", via, instance
        self._place = f"{via.host}:{via.port}"

    def send(self, notice: Notice) -> None:
        """Send it. A recipient that the server refuses does not stop the others. Raises as `Sender` says."""
        message = self.message(notice)
        handed = False
        try:
            with self._connected() as server:
                self._log_in(server)
                handed = True
                server.send_message(message, self._via.sender, list(self._via.to))
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            said = "; ".join(f"{to}: {code} {_said(words)}" for to, (code, words) in error.recipients.items())
            raise self._judged(min(codes, default=550), f"refuses every recipient: {said}", whole=True) from None
        except smtplib.SMTPSenderRefused as error:
            raise self._judged(error.smtp_code, f"refuses the sender: {_said(error.smtp_error)}", whole=True) from None
        except smtplib.SMTPAuthenticationError as error:
            raise self._judged(error.smtp_code, f"refuses to log in: {_said(error.smtp_error)}", whole=True) from None
        except smtplib.SMTPResponseException as error:
            said = f"answers {error.smtp_code} {_said(error.smtp_error)}"
            raise self._judged(error.smtp_code, said, whole=not handed) from None
        except smtplib.SMTPNotSupportedError as error:
            cause = f"{self._place} does not support what the channel needs: {_said(str(error))}"
            raise Rejected(self._target, cause, "set security as the server offers it", whole=True) from None
        except ssl.SSLError as error:
            cause = f"no encrypted connection to {self._place}: {_said(str(error.reason or error))}"
            raise Unreachable(self._target, cause, "check its certificate, port and security") from None
        except (OSError, smtplib.SMTPException) as error:
            cause = f"{self._place}: {_said(str(error)) or type(error).__name__}"
            if handed:
                next_step = "retried automatically; it may arrive twice"
                raise OutcomeUnknown(self._target, f"the mail was sent, then: {cause}", next_step) from None
            raise Unreachable(self._target, f"no mail could be sent: {cause}") from None

    def close(self) -> None:
        """Nothing is kept open."""

    def message(self, notice: Notice) -> EmailMessage:
        """The mail. Its id is the same in every try."""
        message = EmailMessage(POLICY)
        message["Subject"] = text.title(notice, self._instance)
        message["From"] = Address("reconcile", addr_spec=self._via.sender)
        message["To"] = ", ".join(self._via.to)
        message["Date"] = utc(notice.at_wall)
        message["Message-ID"] = f"<{text.delivery(notice, self._instance)}@{self._via.sender.partition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"  # no out-of-office answers (RFC 3834)
        message.set_content(f"{text.body(notice)}\n", charset="utf-8")
        return message

    @contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        """A connection, encrypted as declared, that the deadline closes whatever it waits for."""
        context = None if self._via.security is Security.NONE else self._trust()
        conversation = _Conversation()
        end = threading.Timer(self._deadline, conversation.cut)
        end.daemon = True
        end.start()
        try:
            server = self._server(conversation, context)
            try:
                if self._via.security is Security.STARTTLS:
                    server.starttls(context=context)
                yield server
            finally:
                with suppress(OSError, smtplib.SMTPException):
                    server.quit()
                server.close()
        finally:
            end.cancel()

    def _server(self, conversation: "_Conversation", context: ssl.SSLContext | None) -> smtplib.SMTP:
        """The connection, after the greeting of the server."""

        class Plain(smtplib.SMTP):
            def getreply(self) -> tuple[int, bytes]:
                conversation.sock = self.sock
                return super().getreply()

        class Encrypted(smtplib.SMTP_SSL):
            def getreply(self) -> tuple[int, bytes]:
                conversation.sock = self.sock
                return super().getreply()

        if self._via.security is Security.TLS:
            return Encrypted(self._via.host, self._via.port, _name(), timeout=self._timeout, context=context)
        return Plain(self._via.host, self._via.port, _name(), timeout=self._timeout)

    def _trust(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._via.ca_file or None)
        except (OSError, ssl.SSLError) as error:
            cause = f"cannot use the certificates in {self._via.ca_file}: {error.strerror or error}"
            raise Rejected(self._target, cause, "set caFile to a file of PEM certificates", whole=True) from None

    def _log_in(self, server: smtplib.SMTP) -> None:
        if self._via.password is None:
            return
        password = resolve(self._via.password, self._target).reveal()
        if not (password.isascii() and password.isprintable() and self._via.username.isascii()):
            # smtplib encodes as ASCII, and its error would quote the password.
            cause = "the user name or password has characters beyond ASCII"
            raise Rejected(self._target, cause, "use ASCII characters only", whole=True)
        server.login(self._via.username, password)

    def _judged(self, code: int, said: str, whole: bool) -> ProviderError:
        """The error of an answer: 4xx may be repeated, 5xx is refused (RFC 5321, section 4.2.1)."""
        cause = f"{self._place} {said}"
        if code < 500:
            return Unreachable(self._target, cause)
        return Rejected(self._target, cause, "check the settings of the channel", whole=whole)


def _name() -> str:
    """How this host names itself: a name with a dot, else an address literal, which every server takes. Asks no DNS server."""
    name = socket.gethostname()
    return name if "." in name and name.isascii() else "[127.0.0.1]"


def _said(words: bytes | str) -> str:
    line = words.decode(errors="replace") if isinstance(words, bytes) else words
    return text.clean(SECRETS.mask(line), SHOWN)
