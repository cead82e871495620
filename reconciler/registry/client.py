"""Reads tags and digests of images from a registry, by its HTTP API V2 (https://distribution.github.io/distribution/spec/api/).

Called on the thread of `reconciler/deployments/service.py`. Only registries that local documents list are asked: a manifest chooses no address
of its own. A login goes to the registry, and to the server of tokens that the registry names, over TLS where the registry has it.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

from manifests.escape import escape
from manifests.values.desired import SECOND
from manifests.values.image_ref import DEFAULT_DOMAIN
from manifests.values.write_back import Registry
from providers.errors import Rejected, Unreachable
from providers.lib.http import API, Answer
from providers.lib.secrets import Secret, resolve

TIMEOUT = 10 * SECOND
"""Longest wait (ns) for a connection and for each piece of an answer."""

MAX_ANSWER = 8 * 1024 * 1024
"""Octets of one answer: a page of 1,000 tags of the longest size is 130 KiB."""

PER_PAGE = 1_000
PAGES = 100
"""Pages of tags that are read at most."""

TOKEN_LENGTH = 16 * 1024
"""Longest token of a server of tokens."""

MANIFESTS = ", ".join(
    [
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    ]
)
"""What a digest may be of. Without an index in this list a registry gives the digest of one platform."""

_PARAMETER = re.compile(r'([A-Za-z]+)="([^"]*)"')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?', re.IGNORECASE)
_QUERY = re.compile(r"[\x21-\x7e]{1,2048}")
_PLACE = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?"
)
"""A host and a port, as the address of a server of tokens has them."""
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

CHECK = "check imagePolicies.registries in the Instance of the local documents"


class RegistryClient:
    """One registry.

    Args:
        settings: of local documents.
        steady, wall: clocks of the host, in ns and in seconds.
    """

    def __init__(self, settings: Registry, steady: Callable[[], int], wall: Callable[[], float]) -> None:
        self._settings, self._steady, self._wall = settings, steady, wall
        host = "registry-1.docker.io" if settings.server == DEFAULT_DOMAIN else settings.server
        self._base = f"{'http' if settings.insecure else 'https'}://{host}"
        self._target = f"registry {settings.server}"
        self._apis: dict[str, API] = {}
        self._tokens: dict[str, Secret] = {}

    def tags(self, repository: str) -> tuple[str, ...]:
        """All tags of a repository. Raises Unreachable, Rejected."""
        path = f"/v2/{quote(repository)}/tags/list"
        query, found = f"n={PER_PAGE}", list[str]()
        for _ in range(PAGES):
            answer = self._get("GET", f"{path}?{query}", repository, "application/json")
            body = self._json(answer)
            names = body.get("tags")
            # A repository whose tags were all deleted has null.
            listed = names if isinstance(names, list) else []
            found += [name for name in listed if isinstance(name, str) and _TAG.fullmatch(name)]
            if len(found) > PAGES * PER_PAGE:
                break
            following = _NEXT.search(answer.headers.get("link", ""))
            if following is None:
                return tuple(dict.fromkeys(found))
            # Of the address only the query is used. Its names are the registry's own: most say `last`, Quay says `next_page`.
            next_query = following[1].partition("#")[0].partition("?")[2]
            if next_query == query or not _QUERY.fullmatch(next_query):
                raise Unreachable(self._target, "its list of tags has a next page without a name to go on from")
            query = next_query
        raise Unreachable(self._target, f"{repository} has more than {PAGES * PER_PAGE} tags")

    def digest(self, repository: str, tag: str) -> str:
        """The digest that a tag names now. Raises Unreachable, Rejected."""
        answer = self._get("HEAD", f"/v2/{quote(repository)}/manifests/{quote(tag)}", repository, MANIFESTS)
        digest = answer.headers.get("docker-content-digest", "")
        if not _DIGEST.fullmatch(digest):
            raise Unreachable(self._target, f"it names no digest of {repository}:{tag}")
        return digest

    def close(self) -> None:
        """Close connections."""
        for api in self._apis.values():
            api.close()

    # --- calls --------------------------------------------------------------------------------------------------------

    def _get(self, method: str, path: str, repository: str, accept: str) -> Answer:
        """The answer with status 200; logs in where that is asked for, once."""
        headers = {"Authorization": self._tokens[repository]} if repository in self._tokens else {}
        answer = self._api(self._base).ask(self._target, method, path, headers, accept)
        if answer.status == 401:
            self._tokens.pop(repository, None)
            token = self._login(answer.headers.get("www-authenticate", ""), repository)
            answer = self._api(self._base).ask(self._target, method, path, {"Authorization": token}, accept)
            if answer.status == 200:
                self._tokens[repository] = token
        if answer.status == 200:
            return answer
        what = f"it answers {answer.status} for {escape(path.partition('?')[0])}"
        if answer.status in (401, 403):
            raise Rejected(self._target, what, f"give the login the right to pull; {CHECK}", whole=True)
        if answer.status == 404:
            raise Rejected(self._target, what, "check the name of the image and the tag", whole=True)
        raise Rejected(self._target, what, CHECK, whole=True)

    def _login(self, challenge: str, repository: str) -> Secret:
        """The header of a login, by the challenge of the registry. Raises Unreachable, Rejected."""
        scheme, _, rest = challenge.partition(" ")
        given = dict(_PARAMETER.findall(rest))
        if scheme.lower() == "basic":
            basic = self._basic()
            if basic is None:
                raise Rejected(self._target, "it asks for a login", f"add username and password; {CHECK}", whole=True)
            return basic
        if scheme.lower() != "bearer" or not given.get("realm"):
            raise Rejected(
                self._target, f"it asks for the login {escape(scheme[:40])!r}, which is not known", CHECK, whole=True
            )
        scheme, _, place = given["realm"].partition("://")
        place, _, path = place.partition("/")
        plain = scheme == "http" and self._settings.insecure
        if scheme != "https" and not plain:
            raise Rejected(self._target, "it names a server of tokens without TLS", CHECK, whole=True)
        path, _, own = path.partition("?")
        if not _PLACE.fullmatch(place) or not _QUERY.fullmatch(f"/{path}{own}"):
            cause = f"it names a server of tokens with an invalid address: {escape(given['realm'][:100])!r}"
            raise Rejected(self._target, cause, CHECK, whole=True)
        asked = {"scope": f"repository:{repository}:pull"}
        if given.get("service"):
            asked["service"] = given["service"]
        query = "&".join(part for part in (own, urlencode(asked)) if part)
        basic = self._basic()
        api = self._api(f"{scheme}://{place}")
        headers = {} if basic is None else {"Authorization": basic}
        answer = api.ask(self._target, "GET", f"/{path}?{query}", headers, "application/json")
        if answer.status != 200:
            cause = f"its server of tokens answers {answer.status}"
            raise Rejected(self._target, cause, f"check username and password; {CHECK}", whole=True)
        body = self._json(answer)
        token = body.get("token") or body.get("access_token")
        if not isinstance(token, str) or not 0 < len(token) <= TOKEN_LENGTH:
            raise Unreachable(self._target, "its server of tokens gives no token")
        return Secret(f"Bearer {token}")

    def _basic(self) -> Secret | None:
        if self._settings.password is None:
            return None
        password = resolve(self._settings.password, f"{self._target}: password").reveal()
        pair = f"{self._settings.username}:{password}".encode()
        return Secret(f"Basic {b64encode(pair).decode()}")

    def _api(self, base: str) -> API:
        if base not in self._apis:
            for other in [known for known in self._apis if known != self._base]:
                self._apis.pop(other).close()  # the registry names another server of tokens now
            ca_file = self._settings.ca_file
            self._apis[base] = API(base, TIMEOUT, self._steady, self._wall, ca_file, max_answer=MAX_ANSWER)
        return self._apis[base]

    def _json(self, answer: Answer) -> Mapping[str, object]:
        try:
            body = json.loads(answer.body)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise Unreachable(self._target, "its answer is no JSON object")
        return body
