"""Pulls images before containers are created from them. Called by `create.py`; `doctor.py` asks which images are present.

A pull may take minutes and must neither block the loop nor end with a call's deadline: it runs on its own thread, across calls.
A call waits for a while; if the pull is not complete by then, the call fails with the progress, and the next try finds the pull
further on or complete. A pull whose registry stays silent is abandoned.
"""

import base64
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from manifests.values.image_ref import DEFAULT_DOMAIN, ImageRef, parse_image
from manifests.values.pod import PullPolicy
from providers.errors import Gone, ProviderError, Rejected, Unreachable
from providers.lib.secrets import SecretRef
from providers.runtime.docker.client import EngineClient
from providers.runtime.docker.digest import digest_in_repository

if TYPE_CHECKING:
    import requests

MAX_LINE = 1024 * 1024
"""Octets of one report of the engine about a pull."""

PATIENCE_SECONDS = 15.0
"""How long one call waits for a pull: well below a call's deadline of 30 s."""

STALL_SECONDS = 60.0
"""A pull is abandoned after this long without a report of the engine; while data flows it reports several times a second."""

_NOT_FOUND = (
    "manifest unknown",
    "not found",
    "invalid reference",
    "does not exist",
    "no matching manifest",
)
"""What registries and engines say of an image that does not exist."""

_DENIED = (
    "denied",
    "unauthorized",
    "authentication required",
    "no basic auth",
    "incorrect username or password",
)
"""What they say to a client that has no access. Some say it of images that do not exist, too."""

_FETCHED = frozenset({"Verifying Checksum", "Download complete", "Extracting", "Pull complete", "Already exists"})
"""The engine's status of a layer that has been fetched."""


class Registry(BaseModel):
    """The login for one registry."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    server: str = Field(description="Host of the registry as in image names, such as registry.example.com:5000.")
    username: str = Field(min_length=1, description="Username of the login.")
    password: SecretRef = Field(description="Where the password or token is stored.")


class _Layer(NamedTuple):
    """Progress of one layer: the engine's status, bytes fetched, bytes in all; 0 = unknown."""

    status: str
    current: int
    total: int


class _Pull:
    """One pull under way. Its thread writes, calls read."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: ProviderError | None = None
        self._layers: dict[str, _Layer] = {}

    def record(self, event: dict[str, Any]) -> None:
        """Take in one line of the engine's progress."""
        layer, status = str(event.get("id") or ""), str(event.get("status") or "")
        # The first line has the image's tag instead of a layer.
        if not layer or status.startswith("Pulling from"):
            return
        detail = event.get("progressDetail") or {}
        known = self._layers.get(layer, _Layer("", 0, 0))
        # Unpacking counts its own bytes, up to the same total.
        total = max(0, int(detail.get("total") or 0)) or known.total
        current = int(detail.get("current") or 0) if status == "Downloading" else known.current
        current = total if status in _FETCHED else current
        self._layers = {**self._layers, layer: _Layer(status, current, total)}

    def progress(self) -> str:
        """Progress for messages: layers and, where the engine says sizes, bytes."""
        layers = self._layers.values()
        if not layers:
            return "no answer from the registry yet"
        fetched = sum(layer.status in _FETCHED for layer in layers)
        text = f"{fetched} of {len(layers)} layers fetched"
        total = sum(layer.total for layer in layers)
        if not total:
            return text
        # The engine says the size of a layer when its download starts.
        least = "at least " if any(not layer.total and layer.status not in _FETCHED for layer in layers) else ""
        current = sum(layer.current for layer in layers)
        return f"{text}, {current / 1e6:.1f} of {least}{total / 1e6:.1f} MB"


class Images:
    """The images of one node.

    Args:
        client: the engine.
        registries: the logins, one per registry.
        patience: seconds that one call waits for a pull.
        stall: seconds of silence after which a pull is abandoned.
    """

    def __init__(
        self,
        client: EngineClient,
        registries: Sequence[Registry],
        patience: float = PATIENCE_SECONDS,
        stall: float = STALL_SECONDS,
    ) -> None:
        self._client = client
        self._logins = {_domain(registry.server): registry for registry in registries}
        self._patience, self._stall = patience, stall
        self._lock = threading.Lock()
        self._pulls: dict[str, _Pull] = {}

    def ensure(self, target: str, wanted: Sequence[tuple[str, PullPolicy]]) -> None:
        """Make images present, as their policies say. Missing ones are pulled in parallel, within the patience of one call.

        Args:
            target: what needs them, for messages.
            wanted: full name of each image, and when to ask its registry.

        Raises:
            Rejected: one is missing and may not be pulled, or its registry refuses it.
            Unreachable: a registry cannot be reached, or a pull is under way; the message has its progress.
        """
        missing = [image for image, policy in wanted if policy is PullPolicy.ALWAYS or not self.present(image)]
        for image, policy in wanted:
            if policy is PullPolicy.NEVER and image in missing:
                step = "load the image on the node, or set imagePullPolicy: IfNotPresent"
                raise Rejected(
                    target, f"image {image} is not on {self._client.node}, and imagePullPolicy is Never", step
                )
        pulls = {image: self._begin(target, image) for image in missing}
        end = time.monotonic() + self._patience
        for pull in pulls.values():
            pull.done.wait(max(0.0, end - time.monotonic()))
        waiting = {image: pull for image, pull in pulls.items() if not pull.done.is_set()}
        ended = {image: pull for image, pull in pulls.items() if image not in waiting}
        with self._lock:
            for image, pull in ended.items():
                if self._pulls.get(image) is pull:
                    del self._pulls[image]
        for pull in ended.values():
            if pull.error is not None:
                raise type(pull.error)(target, pull.error.cause, pull.error.next_step)
        if waiting:
            cause = "; ".join(f"image {image} is being pulled: {pull.progress()}" for image, pull in waiting.items())
            raise Unreachable(target, cause, "the pull continues; retried automatically")

    def progress(self) -> tuple[str, ...]:
        """Progress of each pull under way, sorted by image; does not ask the engine."""
        with self._lock:
            pulls = sorted(self._pulls.items())
        return tuple(f"pulling {image}: {pull.progress()}" for image, pull in pulls if not pull.done.is_set())

    def present(self, image: str) -> bool:
        """Whether the image is on the node. Raises Unreachable."""
        try:
            self._client.get(f"/images/{image}/json", image)
        except Gone:
            return False
        return True

    def loaded(self, image: str) -> bool:
        """Whether the image is on the node without a digest of its repository: it came from no registry. Raises Unreachable."""
        try:
            described = self._client.get(f"/images/{image}/json", image)
        except Gone:
            return False
        digests = described.get("RepoDigests") or ()
        return not digest_in_repository([str(digest) for digest in digests], image)

    def _begin(self, target: str, image: str) -> _Pull:
        login = self._header(target, parse_image(image))
        with self._lock:
            pull = self._pulls.get(image)
            if pull is None:
                pull = self._pulls[image] = _Pull()
                name = f"{self._client.node}-pull"
                threading.Thread(target=self._run, args=(pull, image, login), name=name, daemon=True).start()
            return pull

    def _header(self, target: str, ref: ImageRef) -> str:
        """The login for an image's registry, as the engine expects it. Raises Rejected, Unreachable."""
        login = self._logins.get(ref.domain)
        if login is None:
            return ""
        fields = {
            "username": login.username,
            "password": login.password.resolve(target).reveal(),
            "serveraddress": "https://index.docker.io/v1/" if ref.domain == DEFAULT_DOMAIN else ref.domain,
        }
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()

    def _run(self, pull: _Pull, image: str, login: str) -> None:
        try:
            self._pull(pull, image, login)
        except ProviderError as error:
            pull.error = error
        except Exception as error:  # noqa: BLE001  (on its own thread: every error must reach the caller)
            pull.error = self._broken(image, error)
        finally:
            pull.done.set()

    def _pull(self, pull: _Pull, image: str, login: str) -> None:
        ref = parse_image(image)
        params = {"fromImage": ref.repository, "tag": ref.digest or ref.tag or "latest"}
        headers = {"X-Registry-Auth": login} if login else None
        patience = self._stall
        began = time.monotonic()
        try:
            answer = self._client.stream(
                "POST", "/images/create", image, params=params, headers=headers, patience=patience
            )
        except (Gone, Rejected) as error:
            raise self._refused(image, error.cause) from error
        except ProviderError as error:
            if time.monotonic() - began >= self._stall:
                raise self._silent(image) from error
            raise self._refused(image, error.cause) from error
        with answer:
            for line in _lines(answer):
                event = json.loads(line) if line.strip() else {}
                if event.get("error"):
                    raise self._refused(image, str(event["error"]))
                pull.record(event)
        if not self.present(image):
            raise Unreachable(image, "the pull ended, but the image is missing", "check the engine's log")

    def _refused(self, image: str, cause: str) -> ProviderError:
        text = " ".join(cause.split())[:400]
        lowered, message = text.lower(), f"cannot pull image {image}: {text}"
        if any(phrase in lowered for phrase in _DENIED):
            return Rejected(image, message, self._login_step(parse_image(image).domain))
        if any(phrase in lowered for phrase in _NOT_FOUND):
            return Rejected(image, message, "correct the image: its registry does not have it")
        return Unreachable(image, message, "check whether the node reaches the registry")

    def _login_step(self, domain: str) -> str:
        """What to do about a registry that denies access to an image."""
        login = self._logins.get(domain)
        if login is not None:
            account = f"username {login.username}, password in {login.password}"
            return f"correct the login for {domain} in settings.registries ({account}), or the image"
        known = ", ".join(sorted(self._logins)) or "none"
        return f"correct the image, or add a login for {domain} to settings.registries of the provider (now: {known})"

    def _silent(self, image: str) -> Unreachable:
        cause = f"abandoned the pull of image {image}: no data from its registry for {self._stall:g} s"
        return Unreachable(image, cause, "check whether the registry hangs")

    def _broken(self, image: str, error: Exception) -> ProviderError:
        if "timed out" in str(error).lower():
            return self._silent(image)
        return Unreachable(
            image, f"the pull of image {image} was interrupted: {type(error).__name__}", "check the engine's log"
        )

    def close(self) -> None:
        """Leave pulls under way to the engine; their threads end with the process."""
        with self._lock, suppress(RuntimeError):
            self._pulls.clear()


def _domain(server: str) -> str:
    """A registry's host as image names have it."""
    host = server.removeprefix("https://").removeprefix("http://").partition("/")[0]
    return DEFAULT_DOMAIN if host in ("docker.io", "index.docker.io", "registry-1.docker.io") else host


def _lines(answer: "requests.Response") -> Iterator[bytes]:
    """The lines of an answer that ends some time. Raises OSError for a line that does not end."""
    rest = b""
    for chunk in answer.iter_content(16 * 1024):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > MAX_LINE:
            raise OSError(f"the engine's progress has a line of more than {MAX_LINE} octets")
    yield rest
