"""Calls to the API of Route 53: its rate, its credentials, and what its errors allow next. The one module that imports boto3.

An account may make five calls a second, whoever makes them. All providers of this process with the same credentials share
that rate; one part of it is kept for changes, so that a withdrawal never waits for the pages of a large zone.
"""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

import boto3
import botocore.config
import botocore.exceptions as aws

from manifests.values.desired import SECOND
from providers.dns.route53.settings import Route53Settings
from providers.errors import Conflict, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.lib.rate import Bucket, Rate

if TYPE_CHECKING:
    from mypy_boto3_route53.client import Route53Client

Connect = Callable[[], "Route53Client"]

READS = Rate(4, 4)
CHANGES = Rate(1, 5)
"""Calls per second, together the five of an account. After a quiet time a few changes go at once."""

PATIENCE = 25 * SECOND
"""Longest wait (ns) for a turn."""

POLL_SECONDS = 2.0
"""Between two questions whether all name servers have a change."""

LATER = frozenset(
    {
        "PriorRequestNotComplete", "RequestLimitExceeded", "ServiceUnavailable", "SlowDown", "Throttling",
        "ThrottlingException", "TooManyRequestsException",
    }
)  # fmt: skip
"""Errors that say: not now, nothing was done."""

STALE = ("but it already exists", "but it was not found", "do not match the current values")
"""What Route 53 says of a batch whose deletions or creations do not fit what is there."""

NOT_SENT = (
    aws.ConnectTimeoutError,
    aws.EndpointConnectionError,
    aws.ProxyConnectionError,
    aws.SSLError,
)

_buckets: dict[str, tuple[Bucket, Bucket]] = {}
_buckets_lock = Lock()


class Client:
    """Route 53 for one provider.

    Args:
        settings: of the provider.
        steady: steady clock in ns.
        sleep: waits for a number of seconds.
        connect: makes the client, for tests; None = from the settings.
    """

    def __init__(
        self,
        settings: Route53Settings,
        steady: Callable[[], int],
        sleep: Callable[[float], None],
        connect: Connect | None = None,
    ) -> None:
        self._settings = settings
        self._steady = steady
        self._sleep = sleep
        self._connect = connect or self._made
        self._buckets = _shared(settings, steady) if connect is None else _new(steady)
        self._client: Route53Client | None = None
        self._lock = Lock()

    def read(self, target: str, verb: str, **arguments: Any) -> Mapping[str, Any]:
        """A call that changes nothing. Raises `Unreachable`, `Rejected`."""
        return self._call(target, verb, arguments, False)

    def change(self, target: str, **arguments: Any) -> str:
        """Send a change batch; returns the id of the change. Raises as `Route53Zones.perform`."""
        answer = self._call(target, "change_resource_record_sets", arguments, True)
        return str(answer["ChangeInfo"]["Id"])

    def wait(self, target: str, change: str, patience: int) -> None:
        """Wait until all name servers have a change. Raises `OutcomeUnknown` when they do not after `patience` (ns)."""
        end = self._steady() + patience
        while True:
            try:
                status = self.read(target, "get_change", Id=change)["ChangeInfo"]["Status"]
            except Unreachable as error:
                status = error.cause
            except Rejected as error:
                cause = f"the change was accepted, but whether all name servers have it cannot be asked: {error.cause}"
                raise OutcomeUnknown(target, cause, "allow route53:GetChange, or set syncTimeout: 0s") from error
            if status == "INSYNC":
                return
            if self._steady() + int(POLL_SECONDS * SECOND) > end:
                cause = f"the change was accepted, but after {patience / SECOND:g} s it is {status}: not on all name servers"
                raise OutcomeUnknown(target, cause, "look again")
            self._sleep(POLL_SECONDS)

    def close(self) -> None:
        """Close connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _call(self, target: str, verb: str, arguments: Mapping[str, Any], writing: bool) -> Mapping[str, Any]:
        self._turn(target, writing)
        try:
            with self._lock:
                self._client = self._client or self._connect()
            answer: Mapping[str, Any] = getattr(self._client, verb)(**arguments)
            return answer
        except aws.ClientError as error:
            raise self._refused(target, verb, error, writing) from None
        except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.ProfileNotFound) as error:
            raise Rejected(target, str(error), "give the provider an access key or a profile") from None
        except (aws.CredentialRetrievalError, *NOT_SENT) as error:
            raise Unreachable(target, f"no connection to Route 53: {error}") from None
        except aws.ParamValidationError as error:
            raise Rejected(target, f"Route 53 has no such values: {error}", "correct the records") from None
        except aws.BotoCoreError as error:
            if writing:
                raise OutcomeUnknown(target, f"the change was sent, but: {error}", "look again") from None
            raise Unreachable(target, f"no usable answer from Route 53: {error}") from None

    def _refused(self, target: str, verb: str, error: aws.ClientError, writing: bool) -> ProviderError:
        """The error of an answer that is none of success."""
        said = error.response.get("Error", {})
        code, text = str(said.get("Code", "")), str(said.get("Message", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        cause = f"Route 53 answers {code}: {text}" if text else f"Route 53 answers {code}"
        if code in LATER or status == 429:
            return Unreachable(target, cause)
        if status >= 500:
            if writing:
                return OutcomeUnknown(target, cause, "look again")
            return Unreachable(target, cause)
        if any(words in text for words in STALE):
            return Conflict(target, cause, "look again; somebody changed it after the plan was made")
        if status in (401, 403):
            return Rejected(target, cause, f"allow route53:{_operation(verb)} on the hosted zone to these credentials")
        return Rejected(target, cause, "correct the records or the settings of the provider")

    def _turn(self, target: str, writing: bool) -> None:
        """Wait for a call's turn. Raises `Unreachable` when that is too far away."""
        reads, changes = self._buckets
        wait = (changes if writing else reads).reserve(PATIENCE)
        if wait is None:
            raise Unreachable(target, "the account's rate of calls is used up", "it is asked again by itself")
        if wait:
            self._sleep(wait / SECOND)

    def _made(self) -> "Route53Client":
        settings = self._settings
        target = "credentials of AWS"

        def secret(reference: Any) -> str | None:
            return None if reference is None else str(reference.resolve(target).reveal())

        session = boto3.session.Session(
            aws_access_key_id=secret(settings.access_key_id),
            aws_secret_access_key=secret(settings.secret_access_key),
            aws_session_token=secret(settings.session_token),
            profile_name=settings.profile or None,
            region_name=settings.region,
        )
        seconds = settings.timeout / SECOND
        config = botocore.config.Config(
            connect_timeout=seconds,
            read_timeout=seconds,
            # One try: what may be tried again is decided by the caller, who looks first.
            retries={"total_max_attempts": 1},
        )
        return session.client("route53", config=config, endpoint_url=settings.endpoint or None)


def _new(steady: Callable[[], int]) -> tuple[Bucket, Bucket]:
    return Bucket(READS, steady), Bucket(CHANGES, steady)


def _shared(settings: Route53Settings, steady: Callable[[], int]) -> tuple[Bucket, Bucket]:
    """The buckets (reads, changes) of all providers that log in with the same references."""
    account = settings.model_dump_json(include={"access_key_id", "profile", "endpoint", "region"})
    with _buckets_lock:
        if account not in _buckets:
            _buckets[account] = _new(steady)
        return _buckets[account]


def _operation(verb: str) -> str:
    return "".join(part.capitalize() for part in verb.split("_"))
