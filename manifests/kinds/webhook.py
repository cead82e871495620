"""Webhook: the listener on which a forge reports pushes. Part of `source` of a local `Instance`; served by `reconciler/web/webhook.py`."""

from typing import Literal

from pydantic import Field

from manifests.kinds.base import Model
from manifests.kinds.secret_ref import HostSecretReference
from manifests.types.listen import ListenAny, split_address
from manifests.values.desired import WebhookListener


class Webhook(Model):
    """Listener for webhooks of a forge, while `reconcile --watch` runs. A delivery only makes the next poll come sooner. Needs the extra `serve`."""

    listen: ListenAny = Field(
        description="Address and port of `POST /v1/webhook`. It is plain HTTP: where others can reach it, put a TLS proxy in front."
    )
    secret: HostSecretReference = Field(
        description="Secret that the forge signs its deliveries with, or sends (GitLab)."
    )
    provider: Literal["github", "gitlab", "gitea"] | None = Field(
        None,
        description="Kind of the forge; `gitea` also for Forgejo. By default the header of the signature says it. With it, other kinds of "
        "signatures are refused.",
    )

    def listener(self, ref: str, *, tags: bool) -> WebhookListener:
        """The value for the listener. `ref`: of the source. `tags`: every tag concerns it."""
        return WebhookListener(split_address(self.listen), self.secret.source(), self.provider or "", ref, tags)
