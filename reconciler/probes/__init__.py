"""The probe engine: probes containers and DNS target addresses in a process of its own, so that a busy reconcile loop never delays a probe.

- Parent: `engine.py` (starts the child, sends it targets, reads facts), `target.py` (translates a target of the shell for the
  child), `request.py` (the bytes of an HTTP probe).
- Between them: `messages.py`.
- Child: `child.py` (entry point), `loop.py` (one epoll loop), `link.py` (its end of the socket pair), `schedule.py` (due times),
  `slot.py` (one target), `streak.py` (from results to a verdict), `net.py` (sockets).
- Probers: `tcp.py`, `http.py` (plain HTTP, the fast path), `stream.py` (HTTPS and gRPC) with `grpc.py`, `exec.py` with `tree.py`,
  `named.py` with `resolve.py` (a host name, at all of its addresses), `invalid.py` (targets that cannot be probed).
- Pure rules: `answer.py` (an HTTP answer), `redirect.py` (redirects), `off_limits.py` (addresses that probes of names may not reach).
"""
