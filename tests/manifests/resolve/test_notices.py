"""Channels and the forge of an Instance: their defaults, what each type has, and who may write them."""

from typing import get_args

import pytest

from manifests.kinds.notifications import TopicName
from manifests.load import load
from manifests.problems import ManifestErrors
from manifests.resolve.notices import PORTS
from manifests.types.durations import DAY
from manifests.values.notices import DEFAULT_TOPICS, ForgeType, Informed, Mail, Security, Topic, Webhook
from manifests.values.pod import SecretSource
from tests.manifests.trees import PROVIDERS, TYPES

FORGE = "forge: {type: github, url: https://github.com/, project: shop/manifests, token: {env: TOKEN}}"
MAIL = "name: ops, type: smtp, host: mail.example.com, from: reconcile@example.com, to: [ops@example.com]"
HOOK = "name: chat, type: webhook, url: 'https://hooks.example.com/x'"


def instance(*fields: str) -> str:
    lines = "".join(f"  {field}\n" for field in ("id: demo", *fields))
    return f"apiVersion: reconciler/v1\nkind: Instance\nmetadata: {{name: this}}\nspec:\n{lines}"


def loaded(tmp_path, *fields: str) -> Informed:
    """The value of these fields of an Instance in a local document."""
    tree, local = tmp_path / "tree", tmp_path / "local.yaml"
    tree.mkdir(exist_ok=True)
    (tree / "one.yaml").write_text(
        "apiVersion: reconciler/v1\nkind: HealthCheck\nmetadata: {name: x}\nspec: {address: 203.0.113.9}\n"
    )
    local.write_text(f"{instance(*fields)}---\n{PROVIDERS}")
    local.chmod(0o600)
    return load(tree, settings_model=TYPES.get, known_types=lambda: list(TYPES), instance_file=local).instance.informed


def refused(tmp_path, *fields: str) -> str:
    with pytest.raises(ManifestErrors) as caught:
        loaded(tmp_path, *fields)
    return "\n".join(line for problem in caught.value.problems for line in problem.lines())


def channel(*words: str) -> str:
    return f"notifications: [{{{', '.join(words)}}}]"


def test_the_names_of_topics_are_those_of_the_values():
    assert get_args(TopicName) == tuple(topic.value for topic in Topic)


def test_an_instance_informs_no_operator_by_default(tmp_path):
    assert loaded(tmp_path) == Informed()


def test_a_channel_has_all_topics_but_applied_and_a_daily_reminder(tmp_path):
    (made,) = loaded(tmp_path, channel(HOOK)).channels
    assert made.via == Webhook("https://hooks.example.com/x")
    assert (made.topics, made.objects, made.remind, made.per_hour) == (DEFAULT_TOPICS, (), DAY, 20)
    assert Topic.APPLIED not in made.topics


@pytest.mark.parametrize("security", list(Security))
def test_the_port_of_mail_follows_from_its_encryption(tmp_path, security):
    (made,) = loaded(tmp_path, channel(MAIL, f"security: {security.value}")).channels
    assert made.via == Mail(
        "mail.example.com", PORTS[security], security, "reconcile@example.com", ("ops@example.com",)
    )


@pytest.mark.parametrize(
    "field",
    [
        channel("name: x", "type: webhook", "urlFrom: {sops: {file: s.yaml, key: url}}"),
        channel(HOOK, "secret: {age: {file: s.age}}"),
        channel(HOOK, "token: {age: {file: s.age}}"),
        channel(MAIL, "username: me", "password: {sops: {file: ./s.yaml}}"),
        FORGE.replace("env: TOKEN", "age: {file: s.age}"),
        "source: {url: 'git+https://h.example/r.git', token: {sops: {file: s.yaml}}}",
        "source: {url: 'git+ssh://h.example/r.git', sshKey: {age: {file: s.age}}, knownHosts: /hosts}",
        "source: {url: 'git+file:///r.git', webhook: {listen: '127.0.0.1:9', secret: {age: {file: s.age}}}}",
    ],
)
def test_a_file_of_the_tree_cannot_be_a_secret_of_the_host(tmp_path, field):
    message = refused(tmp_path, field)
    assert "is a file of the manifests' directory, which must not choose this secret" in message
    assert "write the absolute path" in message


def test_a_forge_has_the_address_of_its_web_pages(tmp_path):
    made = loaded(tmp_path, FORGE).forge
    assert made is not None
    assert (made.type, made.url, made.token) == (ForgeType.GITHUB, "https://github.com", SecretSource(env="TOKEN"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((HOOK, "to: [a@example.com]"), "a channel of type webhook has no to"),
        ((MAIL, "secret: {env: X}"), "a channel of type smtp has no secret"),
        (("name: x", "type: webhook"), "a webhook has exactly one of url and urlFrom"),
        ((HOOK, "urlFrom: {env: X}"), "a webhook has exactly one of url and urlFrom"),
        (("name: x", "type: apprise"), "urlFrom is missing"),
        (("name: x", "type: smtp", "host: mail.example.com"), "a channel of type smtp needs from"),
        ((MAIL, "username: me"), "username and password belong together"),
        ((MAIL, "username: me", "password: {env: X}", "security: none"), "a password would be sent in clear"),
        (("name: x", "type: webhook", "url: 'http://10.0.0.1/'", "token: {env: X}"), "in clear over plain HTTP"),
        (("name: x", "type: webhook", "url: 'https://me:secret@example.com'"), "has no user, password or fragment"),
        (("name: x", "type: webhook", "url: 'file:///etc/passwd'"), "not an http or https URL"),
        (("name: x", "type: webhook", 'url: "https://example.com/\\r\\nX: y"'), "not an http or https URL"),
        ((MAIL.replace("[ops@example.com]", '["ops\\r\\nBcc: all@example.com"]'),), "is not a mail address"),
        ((HOOK.replace("chat", "forge"),), "choose another name"),
        ((HOOK, "topics: []"), "topics"),
        ((HOOK, "topics: [health, health]"), "in the list twice"),
        ((HOOK, "objects: ['Workload web']"), "is not a pattern of keys"),
    ],
)
def test_a_channel_that_cannot_work_is_refused(tmp_path, words, message):
    assert message in refused(tmp_path, channel(*words))


def test_a_url_that_is_refused_is_not_shown(tmp_path):
    assert "hunter2-secret" not in refused(
        tmp_path, channel("name: x", "type: webhook", "url: 'https:/hunter2-secret'")
    )


def test_two_channels_of_one_name_are_refused(tmp_path):
    assert "in the list twice" in refused(tmp_path, f"notifications: [{{{HOOK}}}, {{{HOOK}}}]")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("https://github.com/", "http://git.example.com", "in clear over plain HTTP"),
        ("https://github.com/", "https://github.com/?a=b", "has no query"),
        ("shop/manifests", "shop/../admin", "is not a project"),
        ("shop/manifests", "shop/team/manifests", "owner/name"),
        ("shop/manifests", "shop", "is not a project"),
    ],
)
def test_a_forge_that_cannot_be_called_safely_is_refused(tmp_path, old, new, message):
    assert message in refused(tmp_path, FORGE.replace(old, new))


def test_a_project_of_gitlab_may_be_in_a_group_of_a_group(tmp_path):
    made = loaded(tmp_path, FORGE.replace("github,", "gitlab,").replace("shop/manifests", "shop/team/manifests")).forge
    assert made is not None
    assert made.project == "shop/team/manifests"


@pytest.mark.parametrize(("field", "text"), [("notifications", channel(HOOK)), ("forge", FORGE)])
def test_a_tree_cannot_choose_who_is_informed(tmp_path, field, text):
    (tmp_path / "one.yaml").write_text(f"{instance(text)}---\n{PROVIDERS}")
    with pytest.raises(ManifestErrors) as caught:
        load(tmp_path, settings_model=TYPES.get, known_types=lambda: list(TYPES))
    (problem,) = caught.value.problems
    assert f"spec.{field} does nothing in the tree" in problem.lines()[0]
