"""Everything that is known about one object: gathered from the stored decision and the ledger, then told as text.

`explanation` is the JSON form; `explain_text` prints it. Called by the `explain` command.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from manifests.values.desired import Desired
from reconciler.cli.render.endpoints import weight_line, why_lines
from reconciler.cli.render.paint import Paint
from reconciler.cli.render.requests import request_json
from reconciler.cli.render.status import Stored, held_line, suspended_line, wait_line
from reconciler.cli.render.table import table
from reconciler.cli.render.times import ago
from reconciler.cli.render.why import evidence_lines
from reconciler.core.limits.suspensions import node_key
from reconciler.core.model.instant import Instant
from reconciler.core.model.ledger import Ledger


def explanation(key: str, stored: Stored, ledger: Ledger, desired: Desired | None) -> dict[str, Any]:
    """What is known about `key`, JSON-able. `step_ids` are the texts by which steps about it are found in the audit."""
    workload, replicas = _replicas(key, stored)
    name = next((one for one in stored["status"]["names"] if one["key"] == key), None)
    about: dict[str, Any] = {"object": key, "instance": stored["instance"]}
    about["workload"] = None if workload is None else {k: v for k, v in workload.items() if k != "replicas"}
    about["replicas"] = list(replicas)
    about["name"] = name
    about["service"] = _service(key, desired)
    about["endpoints"] = _endpoints(key, stored)
    about["cannot_be_read"] = _unknown(key, stored, name)
    for section in ("steps", "holds", "waits"):
        about[section] = [
            one for one in stored[section] if _touches(key, one["object"]) or _of(about["endpoints"], one)
        ]
    about["suspended"] = _suspensions(key, ledger, {node_key(replica["node"]) for replica in replicas})
    about["numbers"] = _numbers(key, ledger, [replica["container"] for replica in replicas])
    about["requests"] = [
        request_json(name, one) for name, one in sorted(ledger.requests.items()) if _touches(key, one.object)
    ]
    about["step_ids"] = _step_ids(key, replicas, name, about)
    return about


def _touches(key: str, other: str) -> bool:
    """Whether something about `other` says something about `key`: itself, its parts, or the document it is a part of."""
    return other == key or other.startswith(f"{key}/") or key.startswith(f"{other}/")


def _endpoints(key: str, stored: Stored) -> list[Mapping[str, Any]]:
    """An endpoint itself, or those of a replica; an older version has stored none."""
    return [one for one in stored["status"].get("endpoints", ()) if key in {one["key"], one["replica"]}]


def _of(endpoints: Sequence[Mapping[str, Any]], item: Mapping[str, Any]) -> bool:
    """Whether a step, hold or wait is about one of these endpoints: their service's, about their container."""
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
            return workload, [one for one in workload["replicas"] if one["replica"] == key]
    return None, []


def _service(key: str, desired: Desired | None) -> dict[str, Any] | None:
    """A service as the manifests have it; decisions speak of it only when something about it is to change."""
    if desired is None:
        return None
    for service in desired.services:
        if service.key == key:
            pools = [f"{balancer.provider}/{balancer.pool}" for balancer in service.balancers]
            backends = [f"{backend.workload} port {backend.port}" for backend in service.backends]
            return {"pools": pools, "backends": backends, "weight": service.weight}
    return None


def _unknown(key: str, stored: Stored, name: Mapping[str, Any] | None) -> dict[str, str]:
    """Of what cannot be read, that which this object depends on: all of it, for what spans providers."""
    unknown: dict[str, str] = dict(stored["status"]["unknown"])
    if name is not None:
        return {one: reason for one, reason in unknown.items() if one.endswith(f"/{name['zone']}")}
    if key.startswith("provider/"):
        own = key.partition("/")[2]
        return {one: reason for one, reason in unknown.items() if one.partition("/")[0] == own}
    return unknown


def _suspensions(key: str, ledger: Ledger, nodes: Collection[str]) -> list[dict[str, Any]]:
    return [
        {
            "object": name,
            "who": one.who,
            "reason": one.reason,
            "until_wall": one.until_wall or None,
            "probes": one.probes,
        }
        for name, one in sorted(ledger.suspensions.items())
        if name == "*" or name in nodes or _touches(key, name)
    ]


def _numbers(key: str, ledger: Ledger, containers: Sequence[str]) -> dict[str, Any]:
    """What the ledger remembers of it: restarts, failures in a row, disruptions under way, failing steps, since when wanted."""

    def mine(objects: Mapping[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in sorted(objects.items()) if name == key or name.startswith(f"{key}/")}

    grants = {name: one for name, one in sorted(ledger.grants.items()) if _touches(key, one.object)}
    failing = {
        step: one for step, one in sorted(ledger.step_failures.items()) if any(name in step for name in containers)
    }
    return {
        "restarts_wall": {name: [at.wall for at in one] for name, one in mine(ledger.attempts).items() if one},
        "failures_in_a_row": {
            name: {"count": one.streak, "last_wall": one.last.wall} for name, one in mine(ledger.failures).items()
        },
        "disruptions": {
            name: {
                "object": one.object,
                "cause": one.cause.value,
                "since_wall": one.at.wall,
                "out_of_names_wall": _wall(one.names_out),
                "weight_0_wall": _wall(one.weight_out),
            }
            for name, one in grants.items()
        },
        "failing_steps": {
            step: {"count": one.streak, "last_wall": one.last.wall, "final": one.stop, "message": one.message}
            for step, one in failing.items()
        },
        "revision_number": {name: one.number for name, one in mine(ledger.revisions).items()},
    }


def _wall(at: Instant | None) -> int | None:
    return None if at is None else at.wall


def _step_ids(
    key: str, replicas: Sequence[Mapping[str, Any]], name: Mapping[str, Any] | None, about: Mapping[str, Any]
) -> list[str]:
    """Texts that occur in the ids of steps about this object: containers, addresses, hosts, pools."""
    del key
    found = [replica["container"] for replica in replicas]
    found += [f"/{replica['address']}:" for replica in replicas if replica["address"]]
    if name is not None:
        found.append(f"/{name['host']}/")
    if about["service"] is not None:
        found += [f" {pool}/" for pool in about["service"]["pools"]]
    return found


# --- text ---------------------------------------------------------------------------------------------------------


def explain_text(about: Mapping[str, Any], paint: Paint, now: int) -> str:
    """The explanation for a person. `now` is the wall clock (ns)."""
    lines = [
        f"{paint.bold(about['object'])} of instance '{about['instance']}', like this since {ago(about['since_wall'], now)}"
    ]
    lines += _state_lines(about, paint, now)
    lines += [f"{paint.bad('cannot be read')}: {one}: {why}" for one, why in sorted(about["cannot_be_read"].items())]
    lines += [suspended_line(one, paint, now) for one in about["suspended"]]
    for one in about["commands_waiting"]:
        lines.append(f"{one['command']} by {one['who']} waits for the next run or look")
    for one in about["steps"]:
        lines.append(f"{paint.bold('due')}      {one['object']}: {one['action']} ({one['cause']}: {one['message']})")
    lines += [held_line(one, paint, now) for one in about["holds"]]
    lines += [wait_line(one, paint, now) for one in about["waits"]]
    if not (about["steps"] or about["holds"] or about["waits"] or about["cannot_be_read"]):
        lines.append("nothing is due, held or waited for")
    lines += _number_lines(about["numbers"], now)
    lines += _request_lines(about["requests"], now)
    lines += _past_lines(about, now)
    lines += evidence_lines(about["evidence"], paint, now)
    return "\n".join(lines)


def _state_lines(about: Mapping[str, Any], paint: Paint, now: int) -> list[str]:
    lines = []
    workload, name, service = about["workload"], about["name"], about["service"]
    if about["object"].startswith("endpoint/"):
        lines += [line for one in about["endpoints"] for line in why_lines(one, paint, now)]
    if workload is not None:
        lines.append(
            f"{workload['key']}: {paint.word(workload['condition'])}, {workload['available']} of {workload['wanted']} available,"
            f" revision {workload['number']} ({workload['revision'][:8]})"
        )
        ordinal = about["object"].removeprefix(workload["key"]).removeprefix("/")  # empty for the whole workload
        missing = [one for one in workload["missing"] if not ordinal or one.endswith(f"-{ordinal}")]
        lines += [f"{one}: missing" for one in missing if not about["replicas"]]
    for one in about["replicas"]:
        where = f" at {one['address']}" if one["address"] else ""
        weight = "" if one["weight"] is None else f", weight {one['weight']}"
        lines.append(
            f"{one['replica']}: {paint.word(one['state'])} ({one['reason']}), {one['runtime']} as {one['container']}"
            f" on {one['node']}{where}{weight}"
        )
        rows = [
            [probe, fact["verdict"], fact["streak"], fact["detail"] or "-", ago(fact["checked_wall"], now)]
            for probe, fact in one["probes"].items()
            if fact is not None
        ]
        if rows:
            head = ["PROBE", "VERDICT", "STREAK", "DETAIL", "CHECKED"]
            lines += [f"  {line}" for line in table(head, rows, paint, frozenset({"VERDICT"}))]
        if one["exit"] is not None:
            lines.append(f"  ended: {one['exit']['cause']}, exit code {one['exit']['code']}")
        lines.append(f"  {one['why']}")
        lines += [f"  {place['key']}: {weight_line(place, paint)}" for place in about["endpoints"]]
    if name is not None:
        published = name["published"]
        shown = "cannot be read" if published is None else ", ".join(published) or "nothing"
        lines.append(f"{name['host']} in zone {name['zone']} points at: {shown}")
    if service is not None:
        lines.append(f"sends to {', '.join(service['backends'])} by pool {', '.join(service['pools'])}")
        lines.append(f"each ready replica gets weight {service['weight']}")
    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _number_lines(numbers: Mapping[str, Any], now: int) -> list[str]:
    lines = []
    for name, walls in numbers["restarts_wall"].items():
        times = ", ".join(ago(wall, now) for wall in walls)
        lines.append(f"{name}: restarted for its health, lately {_times(len(walls))}: {times}")
    for name, one in numbers["failures_in_a_row"].items():
        lines.append(f"{name}: failed {_times(one['count'])} in a row, the last {ago(one['last_wall'], now)}")
    for one in numbers["disruptions"].values():
        stages = [
            text if one[field] is None else f"{text} {ago(one[field], now)}"
            for field, text in (("out_of_names_wall", "out of names"), ("weight_0_wall", "weight 0 read back"))
            if one[field] is not None
        ]
        lines.append(
            f"{one['object']}: being disrupted ({one['cause']}) since {', '.join([ago(one['since_wall'], now), *stages])}"
        )
    for step, one in numbers["failing_steps"].items():
        lines.append(f"{step}: failed {_times(one['count'])}, the last {ago(one['last_wall'], now)}: {one['message']}")
    return lines


def _past_lines(about: Mapping[str, Any], now: int) -> list[str]:
    lines = []
    for one in about["journal"]:
        detail = f": {one['detail']}" if one["detail"] else ""
        lines.append(f"{ago(one['begun_wall'], now)}: {one['action']} ({one['cause']}): {one['outcome']}{detail}")
    lines = ["", "last journal entries:", *(f"  {line}" for line in lines)] if lines else []
    audit = [f"  {ago(one['wall'], now)}: {one['kind']}: {one['text']} (by {one['actor']})" for one in about["audit"]]
    return [*lines, "", "last events:", *audit] if audit else lines


def _request_lines(requests: Sequence[Mapping[str, Any]], now: int) -> list[str]:
    lines = []
    for request in requests:
        reason = f": {request['reason']}" if request["reason"] else ""
        only = f" for container {request['container']}" if request["container"] else ""
        lines.append(
            f"restart request {request['id']}{only}: {request['state']}, by {request['who']} {ago(request['asked_wall'], now)}{reason}"
        )
        lines += [
            f"  {member['object']}: {member['fate']}{': ' + member['message'] if member['message'] else ''}"
            for member in request["members"]
        ]
    return lines
