"""Everything that the stored decision and the ledger say about one object, as JSON and as text.

`explanation` is the JSON form; `explain_lines` shows it. Called by `cli/explain.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from manifests.values.desired import Desired
from manifests.values.privileges import engine_sockets
from reconciler.cli.render.endpoints import weight_line, why_lines
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.requests import request_json
from reconciler.cli.render.revisions import revision_line
from reconciler.cli.render.status import (
    Stored,
    declared_lines,
    due_line,
    held_line,
    revision_text,
    serving_text,
    suspended_line,
    wait_line,
)
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago, short
from reconciler.cli.render.why import evidence_lines
from reconciler.core.limits.suspensions import node_key
from reconciler.core.model.instant import Instant
from reconciler.core.model.ledger import Ledger
from reconciler.core.model.reasons import Rule
from reconciler.core.model.source_problem import OBJECT
from reconciler.core.model.suspension_scope import parse
from reconciler.core.replicas.privilege_changes import of_revisions


def explanation(key: str, stored: Stored, ledger: Ledger, desired: Desired | None) -> dict[str, Any]:
    """All facts about `key` for JSON. `step_ids` are the texts that identify steps about it in the audit."""
    workload, replicas = _replicas(key, stored)
    name = next((name for name in stored["status"]["names"] if name["key"] == key), None)
    about: dict[str, Any] = {"object": key, "instance": stored["instance"]}
    about["workload"] = None if workload is None else {k: v for k, v in workload.items() if k != "replicas"}
    about["replicas"] = list(replicas)
    about["revisions"] = [
        row
        for row in stored["status"].get("revisions", ())
        if workload is not None and row["workload"] == workload["key"] and _unsettled(row)
    ]
    about["privileges"] = [] if workload is None else _privileges(workload["key"], ledger, desired)
    about["files"] = [] if workload is None else _files(workload["key"], desired)
    about["name"] = name
    about["service"] = _service(key, desired)
    about["endpoints"] = _endpoints(key, stored)
    about["cannot_be_read"] = _unknown(key, stored, name)
    for section in ("steps", "holds", "waits"):
        about[section] = [
            item
            for item in stored[section]
            if _touches(key, item["object"]) or _is_of(about["endpoints"], item) or _holds_commits(item)
        ]
    about["suspended"] = _suspensions(key, ledger, {node_key(replica["node"]) for replica in replicas})
    about["numbers"] = _numbers(key, ledger, [replica["container"] for replica in replicas])
    about["requests"] = [
        request_json(name, request)
        for name, request in sorted(ledger.requests.items())
        if _touches(key, request.object)
    ]
    about["step_ids"] = _step_ids(replicas, name, about)
    return about


def _privileges(key: str, ledger: Ledger, desired: Desired | None) -> list[dict[str, Any]]:
    """What the containers of a workload get of their nodes, for each revision that is declared or runs."""
    return [
        {
            "revision": revision,
            "container": privilege.container,
            "privilege": privilege.field.value,
            "value": privilege.value,
            "detail": privilege.detail,
            "read_only": privilege.read_only,
            "text": privilege.text,
        }
        for revision, found in of_revisions(
            ledger, key, engine_sockets(desired.providers) if desired is not None else ()
        ).items()
        for privilege in found
    ]


def _files(key: str, desired: Desired | None) -> list[dict[str, str]]:
    """What a workload gets from files of the repository: its volumes, and the variables with the place of each."""
    workload = next((item for item in desired.workloads if item.key == key), None) if desired is not None else None
    if workload is None:
        return []
    volumes = [
        {"volume": volume.name, "digest": volume.digest, "on_change": volume.on_change.value}
        for volume in workload.template.volumes
    ]
    return volumes + [
        {"container": container, "variable": name, "from": origin} for container, name, origin in workload.env_origins
    ]


def _unsettled(row: Mapping[str, Any]) -> bool:
    """Whether a revision is declared and does not have the traffic, or something is still to happen to it."""
    return (row["declared"] and row["status"] != "active") or row["next"] is not None


def _touches(key: str, other: str) -> bool:
    """Whether a fact about `other` is one about `key`: they are equal, or one of them is a part of the other."""
    return other == key or other.startswith(f"{key}/") or key.startswith(f"{other}/")


def _endpoints(key: str, stored: Stored) -> list[Mapping[str, Any]]:
    """The endpoint `key`, or the endpoints of the replica `key`; an older version stored none."""
    endpoints = stored["status"].get("endpoints", ())
    return [endpoint for endpoint in endpoints if key in {endpoint["key"], endpoint["replica"]}]


def _holds_commits(item: Mapping[str, Any]) -> bool:
    """Whether this lets a new revision of the manifests wait: then every object is held to the one in force."""
    return item["object"] == OBJECT and item.get("rule") != Rule.SOURCE_INVALID.value


def _is_of(endpoints: Sequence[Mapping[str, Any]], item: Mapping[str, Any]) -> bool:
    """Whether a step, hold or wait of a Service is about the container of one of these endpoints."""
    return any(
        item["object"] == endpoint["service"] and endpoint["container"] in f"{item['action']} {item['message']}"
        for endpoint in endpoints
        if "action" in item
    )


def _replicas(key: str, stored: Stored) -> tuple[Mapping[str, Any] | None, Sequence[Mapping[str, Any]]]:
    for workload in stored["status"]["workloads"]:
        if workload["key"] == key:
            return workload, workload["replicas"]
        if key.startswith(f"{workload['key']}/"):
            return workload, [replica for replica in workload["replicas"] if replica["replica"] == key]
    return None, []


def _service(key: str, desired: Desired | None) -> dict[str, Any] | None:
    """A Service from the manifests; a decision contains it only when something about it changes."""
    if desired is None:
        return None
    for service in desired.services:
        if service.key == key:
            pools = [f"{balancer.provider}/{balancer.pool}" for balancer in service.balancers]
            backends = [f"{backend.workload} port {backend.port}" for backend in service.backends]
            return {"pools": pools, "backends": backends, "weight": service.weight}
    return None


def _unknown(key: str, stored: Stored, name: Mapping[str, Any] | None) -> dict[str, str]:
    """The unreadable sources that this object depends on: its zone, its provider, or all of them for other objects."""
    unknown: dict[str, str] = dict(stored["status"]["unknown"])
    if name is not None:
        return {source: reason for source, reason in unknown.items() if source.endswith(f"/{name['zone']}")}
    if key.startswith("provider/"):
        provider = key.partition("/")[2]
        return {source: reason for source, reason in unknown.items() if source.partition("/")[0] == provider}
    return unknown


def _suspensions(key: str, ledger: Ledger, nodes: Collection[str]) -> list[dict[str, Any]]:
    return [
        {
            "object": parse(name).object,
            "scope": parse(name).scope.value,
            "who": suspension.who,
            "reason": suspension.reason,
            "until_wall": suspension.until_wall or None,
            "probes": suspension.probes,
        }
        for name, suspension in sorted(ledger.suspensions.items())
        if (obj := parse(name).object) == "*" or obj in nodes or _touches(key, obj)
    ]


def _numbers(key: str, ledger: Ledger, containers: Sequence[str]) -> dict[str, Any]:
    """The counters in the ledger: restarts, consecutive failures, disruptions in progress, failing steps, revision numbers."""

    def of_key(rows: Mapping[str, Any]) -> dict[str, Any]:
        return {name: row for name, row in sorted(rows.items()) if name == key or name.startswith(f"{key}/")}

    grants = {name: grant for name, grant in sorted(ledger.grants.items()) if _touches(key, grant.object)}
    failing = {
        step: failure
        for step, failure in sorted(ledger.step_failures.items())
        if any(name in step for name in containers)
    }
    return {
        "restarts_wall": _restarts(of_key(ledger.attempts), ledger.by_runtime, ours=True),
        "runtime_restarts_wall": _restarts(of_key(ledger.attempts), ledger.by_runtime, ours=False),
        "failures_in_a_row": {
            name: {"count": failures.streak, "last_wall": failures.last.wall}
            for name, failures in of_key(ledger.failures).items()
        },
        "disruptions": {
            name: {
                "object": grant.object,
                "cause": grant.cause.value,
                "since_wall": grant.at.wall,
                "out_of_names_wall": _wall(grant.names_out),
                "weight_0_wall": _wall(grant.weight_out),
            }
            for name, grant in grants.items()
        },
        "failing_steps": {
            step: {
                "count": failure.streak,
                "last_wall": failure.last.wall,
                "refused": failure.refused,
                "message": failure.message,
            }
            for step, failure in failing.items()
        },
        "revision_number": {name: revision.number for name, revision in of_key(ledger.revisions).items()},
    }


def _restarts(
    attempts: Mapping[str, tuple[Instant, ...]], by_runtime: Mapping[str, tuple[Instant, ...]], *, ours: bool
) -> dict[str, list[int]]:
    """The restarts of each replica for its health (`ours`), or those that the runtime made by itself."""
    rows = {
        name: [at.wall for at in instants if (at not in by_runtime.get(name, ())) is ours]
        for name, instants in attempts.items()
    }
    return {name: walls for name, walls in rows.items() if walls}


def _wall(at: Instant | None) -> int | None:
    return None if at is None else at.wall


def _step_ids(
    replicas: Sequence[Mapping[str, Any]], name: Mapping[str, Any] | None, about: Mapping[str, Any]
) -> list[str]:
    """Texts in the ids of steps about this object: containers, addresses, hosts, pools."""
    texts = [replica["container"] for replica in replicas]
    texts += [f"/{replica['address']}:" for replica in replicas if replica["address"]]
    if name is not None:
        texts.append(f"/{name['host']}/")
    if about["service"] is not None:
        texts += [f" {pool}/" for pool in about["service"]["pools"]]
    return texts


# --- text ---------------------------------------------------------------------------------------------------------


def explain_lines(about: Mapping[str, Any], paint: Paint, now: int) -> list[str]:
    """The explanation as lines. `now` is the wall clock (ns)."""
    age = short(now - about["since_wall"])
    lines = [f"{paint.bold(about['object'])} of instance '{about['instance']}', unchanged for {age}"]
    lines += _state_lines(about, paint, now)
    unknown = sorted(about["cannot_be_read"].items())
    lines += [f"{paint.bad('cannot be read')}: {source}: {reason}" for source, reason in unknown]
    lines += [suspended_line(suspension, paint, now) for suspension in about["suspended"]]
    lines += declared_lines(about["workload"], paint) if about["workload"] is not None else []
    for command in about["commands_waiting"]:
        lines.append(f"{paint.dim('queued')}   {command['command']} by {command['who']}")
    lines += [due_line(step, paint) for step in about["steps"]]
    lines += [held_line(hold, paint, now) for hold in about["holds"]]
    lines += [wait_line(wait, paint, now) for wait in about["waits"]]
    if not (about["steps"] or about["holds"] or about["waits"] or about["cannot_be_read"]):
        lines.append("nothing is due, held or waiting")
    lines += _number_lines(about["numbers"], now)
    lines += _request_lines(about["requests"], now)
    lines += _past_lines(about, now)
    return [*lines, *evidence_lines(about["evidence"], paint, now)]


def _state_lines(about: Mapping[str, Any], paint: Paint, now: int) -> list[str]:
    lines = []
    workload, name, service = about["workload"], about["name"], about["service"]
    if about["object"].startswith("endpoint/"):
        lines += [line for endpoint in about["endpoints"] for line in why_lines(endpoint, paint, now)]
    if workload is not None:
        lines.append(
            f"{workload['key']}: {paint.state(workload['condition'])}, {workload['available']} of {workload['wanted']} available,"
            f" serving: {serving_text(workload.get('serving'))}, declared: {revision_text(workload)}"
        )
        lines += [f"  {revision_line(row, now)}" for row in about["revisions"]]
        lines += [f"  {_file_line(row)}" for row in about["files"]]
        lines += [
            f"  {paint.warn('privilege')} of revision {row['revision'][:8]}: {row['container']}: {row['text']}"
            for row in about["privileges"]
        ]
        ordinal = about["object"].removeprefix(workload["key"]).removeprefix("/")  # empty for the whole workload
        if not about["replicas"]:
            missing = [
                container for container in workload["missing"] if not ordinal or container.endswith(f"-{ordinal}")
            ]
            lines += [f"{container}: missing" for container in missing]
        lines += [
            f"{unreadable['container']}: unknown, because node {unreadable['node']} cannot be read"
            for unreadable in workload.get("unreadable", ())  # an older version stored none
            if not ordinal or unreadable["replica"].endswith(f"/{ordinal}")
        ]
    for replica in about["replicas"]:
        lines += _replica_lines(replica, paint, now)
        lines += [f"  {endpoint['key']}: {weight_line(endpoint, paint)}" for endpoint in about["endpoints"]]
    if name is not None:
        published = name["published"]
        shown = "cannot be read" if published is None else ", ".join(published) or "nothing"
        lines.append(f"{name['host']} in zone {name['zone']} publishes: {shown}")
    if service is not None:
        lines.append(f"pool {', '.join(service['pools'])} sends traffic to {', '.join(service['backends'])}")
        lines.append(f"weight of a ready replica: {service['weight']}")
    return lines


def _file_line(row: Mapping[str, str]) -> str:
    if "volume" in row:
        return f"volume {row['volume']}: files {row['digest'][:12]}, onChange: {row['on_change']}"
    return f"variable {row['variable']} of container {row['container']}: from {row['from']}"


def _replica_lines(replica: Mapping[str, Any], paint: Paint, now: int) -> list[str]:
    where = f" at {replica['address']}" if replica["address"] else ""
    weight = "" if replica["weight"] is None else f", weight {replica['weight']}"
    lines = [
        f"{replica['replica']}: {paint.state(replica['state'])} ({replica['reason']}), {replica['runtime']} as"
        f" {replica['container']} on {replica['node']}{where}{weight}"
    ]
    rows = [
        [probe, fact["verdict"], fact["streak"], fact["detail"] or "-", ago(fact["checked_wall"], now)]
        for probe, fact in replica["probes"].items()
        if fact is not None
    ]
    if rows:
        head = ["PROBE", "VERDICT", "STREAK", "DETAIL", "CHECKED"]
        lines += [f"  {line}" for line in table(head, rows, paint, frozenset({"VERDICT"}))]
    if replica["exit"] is not None:
        lines.append(f"  ended: {replica['exit']['cause']}, exit code {replica['exit']['code']}")
    if replica.get("placement"):  # an older version stored none
        lines.append(f"  {replica['placement']}")
    return [*lines, f"  {replica['why']}"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _number_lines(numbers: Mapping[str, Any], now: int) -> list[str]:
    lines = []
    for field, noun in (
        ("restarts_wall", "recent health restart"),
        ("runtime_restarts_wall", "recent runtime restart"),
    ):
        for name, walls in numbers[field].items():
            ages = ", ".join(ago(wall, now) for wall in walls)
            lines.append(f"{name}: {_count(len(walls), noun)}: {ages}")
    for name, failures in numbers["failures_in_a_row"].items():
        count = _count(failures["count"], "consecutive failure")
        lines.append(f"{name}: {count}, the last {ago(failures['last_wall'], now)}")
    for disruption in numbers["disruptions"].values():
        stages = [
            f"{stage} {ago(disruption[field], now)}"
            for field, stage in (
                ("since_wall", "begun"),
                ("out_of_names_wall", "out of DNS"),
                ("weight_0_wall", "weight 0 read back"),
            )
            if disruption[field] is not None
        ]
        lines.append(f"{disruption['object']}: disruption in progress ({disruption['cause']}): {', '.join(stages)}")
    for step, failure in numbers["failing_steps"].items():
        count, age = _count(failure["count"], "failure"), ago(failure["last_wall"], now)
        lines.append(f"{step}: {count}, the last {age}: {failure['message']}")
    return lines


def _past_lines(about: Mapping[str, Any], now: int) -> list[str]:
    lines = []
    for entry in about["journal"]:
        detail = f": {entry['detail']}" if entry["detail"] else ""
        age = ago(entry["begun_wall"], now)
        lines.append(f"  {age}: {entry['action']} ({entry['cause']}): {entry['outcome']}{detail}")
    lines = ["", "last journal entries:", *lines] if lines else []
    events = [
        f"  {ago(row['time_wall'], now)}: {row['kind']}: {row['text']} (by {row['actor']})" for row in about["audit"]
    ]
    return [*lines, "", "last events:", *events] if events else lines


def _request_lines(requests: Sequence[Mapping[str, Any]], now: int) -> list[str]:
    lines = []
    for request in requests:
        reason = f": {request['reason']}" if request["reason"] else ""
        container = f" for container {request['container']}" if request["container"] else ""
        by = f"by {request['who']} {ago(request['asked_wall'], now)}"
        lines.append(f"restart request {request['id']}{container}: {request['state']}, {by}{reason}")
        for member in request["members"]:
            message = f": {member['message']}" if member["message"] else ""
            lines.append(f"  {member['object']}: {member['fate']}{message}")
    return lines
