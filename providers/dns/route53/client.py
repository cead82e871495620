"""Calls to the API of Route 53: rate, credentials, and errors sorted by what may follow. The only module that imports boto3.

An account may make five calls a second in total. All providers of this process with the same credentials share that rate. One
part of it is reserved for changes, so that removing a record never waits for the pages of a large zone.
"""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

import boto3
import botocore.config
import botocore.exceptions as aws
from botocore.parsers import ResponseParserError

from manifests.values.desired import SECOND
from providers.dns.route53.answers import BoundedSession
from providers.dns.route53.settings import Route53Settings
from providers.errors import Conflict, OutcomeUnknown, ProviderError, Rejected, Unreachable
from providers.lib.rate import Bucket, Rate

if TYPE_CHECKING:
    from mypy_boto3_route53.client import Route53Client

Connect = Callable[[], "Route53Client"]

READS = Rate(4, 4)
CHANGES = Rate(1, 5)
"""Calls per second, together the five of an account. After a quiet time a few changes can go at once."""

PATIENCE = 25 * SECOND
"""Longest wait (ns) for a turn."""

POLL_SECONDS = 2.0
"""Seconds between two requests for the state of a change."""

LATER = frozenset(
    {
        "PriorRequestNotComplete", "RequestLimitExceeded", "ServiceUnavailable", "SlowDown", "Throttling",
        "ThrottlingException", "TooManyRequestsException",
    }
)  # fmt: skip
"""Errors after which nothing was done and a retry is right."""

STALE = ("but it already exists", "but it was not found", "do not match the current values")
"""Texts of errors of Route 53 for a batch that does not fit the present record sets."""

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
        connect: makes the boto3 client, for tests; None = from the settings.
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
        self._connect = connect or self._new_client
        self._buckets = _shared(settings, steady) if connect is None else _new(steady)
        self._client: Route53Client | None = None
        self._lock = Lock()

    def read(self, target: str, verb: str, **arguments: Any) -> Mapping[str, Any]:
        """A read-only call. Raises `Unreachable`, `Rejected`."""
        return self._call(target, verb, arguments, False)

    def change(self, target: str, **arguments: Any) -> str:
        """Send a change batch; returns the id of the change. Raises as `Route53Zones.perform`."""
        answer = self._call(target, "change_resource_record_sets", arguments, True)
        return str(answer["ChangeInfo"]["Id"])

    def wait(self, target: str, change: str, patience: int) -> None:
        """Wait until all name servers have a change. Raises `OutcomeUnknown` after `patience` (ns)."""
        end = self._steady() + patience
        while True:
            try:
                status = self.read(target, "get_change", Id=change)["ChangeInfo"]["Status"]
            except Unreachable as error:
                status = error.cause
            except Rejected as error:
                cause = f"Route 53 accepted the change, but not the request for its state: {error.cause}"
                raise OutcomeUnknown(target, cause, "allow route53:GetChange, or set syncTimeout: 0s") from error
            if status == "INSYNC":
                return
            if self._steady() + int(POLL_SECONDS * SECOND) > end:
                cause = f"Route 53 accepted the change, but after {patience / SECOND:g} s it is {status}: not on all name servers"
                raise OutcomeUnknown(target, cause, "retried automatically")
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
            raise Rejected(target, str(error), "set accessKeyId and secretAccessKey, or profile", whole=True) from None
        except (aws.CredentialRetrievalError, *NOT_SENT) as error:
            raise Unreachable(target, f"no connection to Route 53: {error}") from None
        except aws.ParamValidationError as error:
            raise Rejected(target, f"Route 53 does not accept these values: {error}", "correct the records") from None
        except (aws.BotoCoreError, ResponseParserError) as error:
            if writing:
                raise OutcomeUnknown(target, f"the change was sent, then: {error}", "retried automatically") from None
            raise Unreachable(target, f"no usable answer from Route 53: {error}") from None

    def _refused(self, target: str, verb: str, error: aws.ClientError, writing: bool) -> ProviderError:
        """The error for an answer of Route 53 that refuses the call."""
        answer = error.response.get("Error", {})
        code, text = str(answer.get("Code", "")), str(answer.get("Message", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        cause = f"Route 53 answers {code}: {text}" if text else f"Route 53 answers {code}"
        if code in LATER or status == 429:
            return Unreachable(target, cause)
        if status >= 500:
            if writing:
                return OutcomeUnknown(target, cause, "retried automatically")
            return Unreachable(target, cause)
        if any(words in text for words in STALE):
            return Conflict(target, cause, "retried automatically: the record set changed after the plan was made")
        if status in (401, 403):
            next_step = f"allow route53:{_operation(verb)} on the hosted zone to these credentials"
            return Rejected(target, cause, next_step, whole=True)
        return Rejected(target, cause, "correct the records or the settings of the provider")

    def _turn(self, target: str, writing: bool) -> None:
        """Wait for a call's turn. Raises `Unreachable` if that takes longer than `PATIENCE`."""
        reads, changes = self._buckets
        wait = (changes if writing else reads).reserve(PATIENCE)
        if wait is None:
            raise Unreachable(
                target,
                f"the account's rate of calls allows none within {PATIENCE // SECOND} s",
                "retried automatically",
            )
        if wait:
            self._sleep(wait / SECOND)

    def _new_client(self) -> "Route53Client":
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
            # One try: the caller decides about retries, and looks first.
            retries={"total_max_attempts": 1},
        )
        client = session.client("route53", config=config, endpoint_url=settings.endpoint or None)
        # boto3 has no public name for its session. Without this one, no answer would be bounded, so a missing one is an error.
        endpoint: Any = client._endpoint  # type: ignore[attr-defined]
        endpoint.http_session = BoundedSession(endpoint.http_session, settings.timeout, self._steady)
        return client


def _new(steady: Callable[[], int]) -> tuple[Bucket, Bucket]:
    return Bucket(READS, steady), Bucket(CHANGES, steady)


def _shared(settings: Route53Settings, steady: Callable[[], int]) -> tuple[Bucket, Bucket]:
    """The buckets (reads, changes) of all providers with the same credentials."""
    account = settings.model_dump_json(include={"access_key_id", "profile", "endpoint", "region"})
    with _buckets_lock:
        if account not in _buckets:
            _buckets[account] = _new(steady)
        return _buckets[account]


def _operation(verb: str) -> str:
    return "".join(part.capitalize() for part in verb.split("_"))
