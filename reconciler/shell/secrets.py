"""The secrets that this process knows, and the mask that hides them in every text from outside.

What providers and probes answer may repeat a secret: an exec probe prints its environment, a server its request. Such text is masked
where it enters the loop (facts, verdicts, outcomes of steps, evidence), so that no event, status, log or file can have it; outputs
and logs mask again. A provider or a probe adds each secret when it resolves it, and `learn` adds those of the manifests before
the first probe of a container runs.
"""

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, quote_plus

from manifests.values.desired import Desired, Instance, Template
from manifests.values.secret_sources import SecretSource
from providers.errors import ProviderError
from providers.facts import ContainerFact, ProbeFact
from providers.lib.secrets import SecretRef, resolve

MASK = "***"

LONG = 8
"""The least characters of a secret that is masked anywhere in a text. A shorter one would hide parts of many words: it is masked where
it is the whole text."""

CUT = 4
"""The least characters of a secret at the end of a text that was cut (`...`) which are masked."""

_CUT_MARKS = ("...", "\u2026")


class Secrets:
    """The secrets known to this process; masks them in texts. Used from several threads."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._forms: frozenset[str] = frozenset()
        self._values: tuple[str, ...] = ()
        self._short: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def add(self, secret: str) -> None:
        """Mask this text from now on, also escaped, percent-encoded or in Base64, and each line of it. An empty text is ignored."""
        if secret in self._known:
            return
        parts = {part for part in (secret, secret.strip(), *secret.splitlines()) if part.strip()}
        long = {part for part in parts if len(part) >= LONG}
        self._short |= {form for part in parts - long for form in _escaped(part)}
        self._values = tuple(sorted({*self._values, *long}, key=len, reverse=True))
        self._forms |= {form for part in long for form in (*_escaped(part), *_base64(part))}
        longest_first = sorted(self._forms, key=lambda text: (-len(text), text))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self._known |= {secret}

    def mask(self, text: str) -> str:
        """The text with `MASK` in place of every secret of at least LONG characters, or `MASK` when the whole text is a shorter one."""
        if not self._known or not text:
            return text
        if self._short and text.strip() in self._short:
            return MASK
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
            if text.endswith(_CUT_MARKS):
                text = self._without_beginning(text)
        return text

    def _without_beginning(self, text: str) -> str:
        """A text that was cut, without the beginning of a secret at its end."""
        mark = next(mark for mark in _CUT_MARKS if text.endswith(mark))
        uncut = text.removesuffix(mark)
        for value in self._values:
            size = next((size for size in range(len(value) - 1, CUT - 1, -1) if uncut.endswith(value[:size])), 0)
            if size:
                return f"{uncut[:-size]}{MASK}{mark}"
        return text


def _escaped(text: str) -> set[str]:
    """A text, and its forms inside other texts: `repr` with either kind of quotes, JSON, URLs, probe details."""
    bare = repr(text)[1:-1].replace("\\'", "'")
    quoted = bare.replace("'", "\\'")
    urls = {quote(text, safe=""), quote(text), quote_plus(text)}
    lower = {re.sub("%[0-9A-F]{2}", lambda match: match.group().lower(), url) for url in urls}
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return {
        text,
        bare,
        quoted,
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        shown,
        *urls,
        *lower,
    }


def _base64(text: str) -> set[str]:
    """What a text looks like inside Base64 of a longer one, at each of the three alignments."""
    data = text.encode(errors="surrogateescape")
    forms = set()
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            # Characters that depend on what stands before or after are left out.
            begin, end = (8 * before + 5) // 6, 8 * (before + len(data)) // 6
            forms.add(encode(bytes(before) + data).decode()[begin:end])
    return forms


SECRETS = Secrets()
"""The secrets of this process: code that resolves a secret adds it here, code that takes or prints text masks with it."""


def masked_fact(fact: ContainerFact) -> ContainerFact:
    """A fact with the texts of programs masked: the output of the runtime's health check, and the name of another healer."""
    health, healer = fact.health, SECRETS.mask(fact.healer)
    if health is not None and health.output:
        output = SECRETS.mask(health.output)
        health = health if output == health.output else health._replace(output=output)
    return fact if health is fact.health and healer == fact.healer else replace(fact, health=health, healer=healer)


def masked_verdict(fact: ProbeFact) -> ProbeFact:
    """A verdict with its detail masked."""
    detail = SECRETS.mask(fact.detail)
    return fact if detail == fact.detail else fact._replace(detail=detail)


def references_of(desired: Desired) -> Iterator[tuple[str, list[SecretSource]]]:
    """The references to secrets in manifests, by the key of the provider or workload that has them."""
    for provider in desired.providers:
        yield provider.key, list(_in_settings(provider.settings))
    for workload in desired.workloads:
        yield workload.key, secrets_of(workload.template)


def all_references(desired: Desired) -> Iterator[tuple[str, list[SecretSource]]]:
    """As `references_of`, with those in headers of probes and health checks, and of the Instance."""
    yield from references_of(desired)
    for workload in desired.workloads:
        main = workload.template.container
        probes = [probe for probe in (main.startup, main.liveness, main.readiness) if probe is not None]
        yield workload.key, [source for probe in probes for source in _in_headers(probe.headers)]
    for policy in desired.policies:
        if policy.check is not None:
            yield policy.key, list(_in_headers(policy.check.headers))
    for check in desired.checks:
        yield check.key, list(_in_headers(check.check.headers))
    yield f"instance/{desired.instance.id}", list(_of_instance(desired.instance))


def _of_instance(instance: Instance) -> Iterator[SecretSource]:
    if instance.metrics is not None and instance.metrics.token is not None:
        yield instance.metrics.token
    if instance.webhook is not None:
        yield instance.webhook.secret
    yield from instance.source_secrets
    yield from instance.informed.secrets
    yield from instance.writing.secrets


def _in_headers(headers: tuple[tuple[str, str | SecretSource], ...]) -> Iterator[SecretSource]:
    yield from (value for _, value in headers if isinstance(value, SecretSource))


def secrets_of(template: Template) -> list[SecretSource]:
    """The secrets that the containers of a template need to be created."""
    return [source for main in (template.container, *template.sidecars) for _, source in main.engine.secret_env]


def learn(desired: Desired) -> None:
    """Resolve the secrets of containers, so that they are masked although an earlier process created the containers.

    Blocks on files: called on a thread. A secret that cannot be resolved now stays unknown.
    """
    for key, references in references_of(desired):
        for reference in references if key.startswith("workload/") else ():
            try:
                SECRETS.add(resolve(reference, key).reveal())
            except (ProviderError, ValueError):
                continue


_FORMS = frozenset(SecretRef.model_fields)


def _in_settings(value: Any) -> Iterator[SecretSource]:
    """The references in a provider's settings: objects with one of the forms of a reference alone."""
    if isinstance(value, Mapping):
        given = {name: text for name, text in value.items() if text is not None}
        if len(given) == 1 and given.keys() <= _FORMS:
            try:
                yield SecretRef.model_validate(given).source()
            except ValueError:
                return
            return
        for inner in value.values():
            yield from _in_settings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _in_settings(inner)
