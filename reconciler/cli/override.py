"""`reconcile drain`, `force` and `release`: the operator's overrides of endpoints and DNS targets. Only facts rank above them.

An override is of a replica with all its endpoints (`workload/web/0`), of one member of one pool
(`endpoint/PROVIDER/POOL/ADDRESS:PORT`), or, with `force` only, of one target of a DNSPolicy (`dnspolicy/app/eu`). `workload/web`
means each of its present replicas. The command goes into the inbox of the instance, and the override lasts until it expires or is
released.
"""

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from manifests.types.durations import format_duration
from manifests.values.desired import SECOND
from reconciler.cli import last_serving
from reconciler.cli.inbox import refreshed, send_and_report
from reconciler.cli.objects import Known, key_of, known_objects, unknown_object
from reconciler.cli.options import DurationType, Options, common_options, target_options, usage_error
from reconciler.cli.where import Place, find, joined, path_optional
from reconciler.core.model.override import held_actions
from reconciler.exits import Exit
from reconciler.shell.clock import SystemClock, utc

if TYPE_CHECKING:
    from reconciler.tree import Given

EVERYTHING = "*"
"""The object of a release of all overrides."""

_KEYS = "give a replica such as workload/web/0, a workload, or an endpoint as in 'reconcile get endpoints'"
_TARGETS = ", or a target of a DNSPolicy such as dnspolicy/app/eu"


_force_option = click.option(
    "--force", "forced", is_flag=True, help="Also where nothing else serves in a pool or name of KEY."
)


@click.command(
    epilog="""\b
The weight of the endpoint becomes 0 at once; of a replica, in every pool. Requests in
flight go on, and nothing is stopped. The drain outlasts restarts of the replica, which
counts as not available meanwhile. To stop health restarts too, use reconcile suspend.

\b
A drain that would leave a pool or a name without an endpoint that serves needs --force.

\b
Examples:
  reconcile drain workload/web/0 manifests/ --reason "looking into a leak" --for 30m
  reconcile drain endpoint/edge-1/be_web:web/172.20.0.4:8080 --instance-id my-host
  reconcile drain workload/web manifests/ --reason "maintenance" --for 1h --force
""",
)
@click.argument("key")
@path_optional
@click.option(
    "--for", "duration", type=DurationType(), metavar="DURATION", help="Release automatically after this time."
)
@click.option("--reason", default="", help="The reason, shown in status and events.")
@_force_option
@target_options
@common_options
def drain(key: str, path: "Given | None", duration: int | None, reason: str, forced: bool, **raw: Any) -> Exit:
    """Take KEY, a replica, all replicas of a workload or an endpoint, out of traffic until it is released."""
    return _override(key, path, _Wanted("", duration, reason, forced), raw)


@click.command(
    epilog="""\b
up gives full weight, down gives weight 0, regardless of pushes and probes. A replica that
does not run gets no weight in any case. --for is required, because nothing watches a forced
endpoint. down needs --force where it would leave a pool or a name without an endpoint that
serves.

\b
A target of a DNSPolicy (dnspolicy/NAME/TARGET) is published (up) or withdrawn (down),
regardless of its check, its Service and its manifest. The last target stays published.

\b
Examples:
  reconcile force workload/web/0 up manifests/ --for 10m --reason "its probe is wrong"
  reconcile force endpoint/edge-1/be_web:web/172.20.0.4:8080 down --for 1h --reason "bad disk"
  reconcile force dnspolicy/app/eu down manifests/ --for 2h --reason "work on the line"
""",
)
@click.argument("key")
@click.argument("value", metavar="up|down", type=click.Choice(["up", "down"]))
@path_optional
@click.option(
    "--for",
    "duration",
    type=DurationType(),
    metavar="DURATION",
    required=True,
    help="Release automatically after this time.",
)
@click.option("--reason", required=True, help="The reason, shown in status and events.")
@_force_option
@target_options
@common_options
def force(key: str, value: str, path: "Given | None", duration: int, reason: str, forced: bool, **raw: Any) -> Exit:
    """Force KEY, a replica, an endpoint or a target of a DNSPolicy, up or down, regardless of pushes and probes."""
    if not reason.strip():
        raise usage_error("--reason is empty", "give a reason for other operators")
    return _override(key, path, _Wanted(value, duration, reason, forced), raw)


@click.command(
    epilog="""\b
Examples:
  reconcile release workload/web/0 manifests/
  reconcile release --all --instance-id my-host
""",
)
@click.argument("key", required=False)
@path_optional
@click.option("--all", "everything", is_flag=True, help="Release all overrides of this instance.")
@target_options
@common_options
def release(key: str | None, path: "Given | None", everything: bool, **raw: Any) -> Exit:
    """Release KEY after 'drain' or 'force': pushes and probes decide again."""
    if everything and key is not None:
        if path is not None:
            raise usage_error(f"--all and '{key}' cannot be used together", "give one of them")
        path, key = Path(key), None
    if key is None and not everything:
        raise usage_error("KEY is missing", "give a drained or forced object, or --all")
    options = Options.of(raw)
    place = find(path, options, raw["instance_id"])
    known = known_objects(place)
    overridden = ", ".join(sorted(known.overridden)) or "nothing"
    if key is None:
        if not known.overridden:
            raise usage_error("nothing is drained or forced", "to list endpoints, run: reconcile get endpoints")
        key, name = EVERYTHING, overridden
    else:
        key = name = key_of(key)
        replicas = sorted(each for each in known.overridden if each.startswith(f"{key}/")) if _whole(key) else []
        if replicas:
            return send_and_report("release", [{"object": each} for each in replicas], place, options, name, "released")
        if key not in known.overridden:
            if known.all and key not in known.all:
                raise unknown_object(key, known)
            raise usage_error(f"{key} is neither drained nor forced", f"drained or forced: {overridden}")
    return send_and_report("release", [{"object": key}], place, options, name, "released")


class _Wanted(NamedTuple):
    """The override that the operator asks for: `up`, `down` or empty for a drain, for how long (ns, None: no end), and why.

    `forced`: also where nothing else serves.
    """

    value: str
    duration: int | None
    reason: str
    forced: bool


def _override(key: str, path: "Given | None", wanted: _Wanted, raw: dict[str, Any]) -> Exit:
    """Send an override of KEY."""
    verb = "force" if wanted.value else "drain"
    key = key_of(key)
    if wanted.duration is not None and wanted.duration < SECOND:
        raise usage_error("--for is shorter than a second", "give a time such as 30m")
    options = Options.of(raw)
    place = find(path, options, raw["instance_id"])
    known = known_objects(place)
    _check(verb, key, known)
    keys = _replicas(key, known) if _whole(key) else [key]
    if wanted.value != "up" and not wanted.forced:
        _ask(verb, key, keys, path, wanted, place, known.overridden, raw)
    now = SystemClock().now()
    until = now.wall + wanted.duration if wanted.duration else 0
    payload = {"reason": wanted.reason.strip(), "until_wall": until, "value": wanted.value, "forced": wanted.forced}
    end = f"until {utc(until):%Y-%m-%d %H:%M:%S} UTC" if until else "until it is released"
    effect = f"forced {wanted.value} {end}" if wanted.value else f"drained {end}"
    payloads = [{"object": each, **payload} for each in keys]

    def held() -> str:
        return "" if wanted.value == "up" or wanted.forced else _held(place, keys)

    return send_and_report(verb, payloads, place, options, key, effect, held)


def _held(place: Place, keys: list[str]) -> str:
    """Why the running process holds overrides of these keys: another command, or a failure, came first."""
    if not refreshed(place):
        return ""
    with joined(place) as store:
        last = store.last_decision()
    holds = json.loads(last.text)["holds"] if last is not None else ()
    phrases = [
        f"{hold['message']}; next step: {hold['next_step']}"
        for hold in holds
        if hold["object"] in keys and hold["action"] in held_actions(hold["object"])
    ]
    return "; ".join(dict.fromkeys(phrases))


def _whole(key: str) -> bool:
    """Whether KEY is a workload with all its replicas."""
    kind, _, name = key.partition("/")
    return kind == "workload" and bool(name) and "/" not in name


def _replicas(key: str, known: Known) -> list[str]:
    """The present replicas of a workload."""
    replicas = sorted(each for each in known.all if each.startswith(f"{key}/"))
    if not replicas:
        raise usage_error(f"no replica of '{key}' is known", "give PATH, or a replica such as workload/web/0")
    return replicas


def _ask(
    verb: str,
    key: str,
    keys: list[str],
    path: "Given | None",
    wanted: _Wanted,
    place: Place,
    overridden: Iterable[str],
    raw: dict[str, Any],
) -> None:
    """Refuse what would leave a pool or a name without an endpoint that serves, and show the command that does it."""
    if not place.has_run:
        return
    refreshed(place)
    with joined(place) as store:
        last = store.last_decision()
    lost = last_serving.lost(json.loads(last.text), keys, overridden) if last is not None else []
    if not lost:
        return
    words = ["reconcile", verb, key, *([wanted.value] if wanted.value else []), *([str(path)] if path else [])]
    words += ["--for", format_duration(wanted.duration)] if wanted.duration else []
    words += ["--reason", wanted.reason] if wanted.reason else []
    for option in ("instance", "instance_id", "state_dir"):
        words += [f"--{option.replace('_', '-')}", str(raw[option])] if raw.get(option) else []
    done = f"force {key} down" if wanted.value else f"drain {key}"
    raise usage_error(
        f"to {done} would stop what serves: {'; '.join(lost)}",
        f"bring another endpoint back first, or run: {shlex.join([*words, '--force'])}",
    )


def _check(verb: str, key: str, known: Known) -> None:
    """Refuse a KEY that cannot be overridden. While no object is known, every KEY of an allowed kind is accepted."""
    kind, _, name = key.partition("/")
    if kind == "dnspolicy" and "/" in name:
        _check_target(verb, key, known)
        return
    if kind not in {"workload", "endpoint"} or not name:
        done, keys = ("drained", _KEYS) if verb == "drain" else ("forced", _KEYS + _TARGETS)
        raise usage_error(f"'{key}' cannot be {done}", keys)
    if known.all and key not in known.all:
        raise unknown_object(key, known)


def _check_target(verb: str, key: str, known: Known) -> None:
    if verb == "drain":
        raise usage_error(f"'{key}' cannot be drained: it is a DNS target", f"run: reconcile force {key} down")
    if known.all and key not in known.targets:
        raise usage_error(f"no target is named '{key}'", f"targets: {', '.join(sorted(known.targets)) or 'none'}")
