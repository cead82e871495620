"""From the checked channels and forge of an Instance to their values. Called by `instance.py`."""

from importlib.util import find_spec

from manifests import kinds
from manifests.kinds.forge import Forge
from manifests.kinds.notifications import Channel
from manifests.kinds.secret_ref import SecretReference
from manifests.kinds.validate import Declared
from manifests.problems import Code
from manifests.resolve.references import Scope
from manifests.values import notices
from manifests.values.notices import ForgeType, Security, Topic
from manifests.values.secret_sources import SecretSource

PORTS = {Security.STARTTLS: 587, Security.TLS: 465, Security.NONE: 25}
"""The ports of submission (RFC 6409), of submission over TLS (RFC 8314) and of relay (RFC 5321)."""


def informed(declared: Declared, scope: Scope, manifest: kinds.Instance) -> notices.Informed:
    """Who is informed. Reports a package that is missing."""
    spec = manifest.spec
    for index, channel in enumerate(spec.notifications):
        if channel.type == "apprise" and find_spec("apprise") is None:
            message = f"{declared.key}: channel '{channel.name}' needs apprise, which is not installed"
            hint = "run pip install 'reconciler-gitops[notify]'"
            scope.report(declared, ("spec", "notifications", index, "type"), Code.UNSUPPORTED_FIELD, message, hint)
    return notices.Informed(
        tuple(map(_channel, spec.notifications)), None if spec.forge is None else resolve_forge(spec.forge)
    )


def _channel(channel: Channel) -> notices.Channel:
    return notices.Channel(
        channel.name,
        _via(channel),
        tuple(map(Topic, channel.topics)),
        channel.objects,
        int(channel.remind_every),
        channel.max_per_hour,
    )


def _via(channel: Channel) -> notices.Webhook | notices.Mail | notices.Apprise:
    if channel.type == "webhook":
        ca_file, url = channel.ca_file or "", channel.url or ""
        return notices.Webhook(url, _source(channel.url_from), _source(channel.secret), _source(channel.token), ca_file)
    if channel.type == "apprise":
        source = _source(channel.url_from)
        assert source is not None  # noqa: S101  (the model has checked it)
        return notices.Apprise(source)
    security = Security(channel.security or Security.STARTTLS)
    return notices.Mail(
        (channel.host or "").removesuffix("."),
        channel.port or PORTS[security],
        security,
        channel.sender or "",
        channel.to,
        channel.username or "",
        _source(channel.password),
        channel.ca_file or "",
    )


def resolve_forge(forge: Forge) -> notices.Forge:
    """The forge that an Instance, or a command line, declares."""
    return notices.Forge(ForgeType(forge.type), forge.url, forge.project, forge.token.source(), forge.ca_file or "")


def _source(reference: SecretReference | None) -> SecretSource | None:
    return None if reference is None else reference.source()
