"""The probe engine: asks containers and the addresses of names how they are, on time, whatever the rest of the program is doing.

The parent's side: `engine.py` (the child process and what is sent to it), `target.py` (a probe as the shell says it, as the
child reads it), `request.py` (the bytes of an HTTP probe). Between them: `messages.py`. The child's side: `child.py` (its
entry), `loop.py` (one epoll loop), `link.py` (its end of the socket pair), `schedule.py` (when), `slot.py` (one target),
`streak.py` (from results to a verdict), `net.py` (sockets). Ways to ask: `tcp.py`, `http.py` (plain HTTP, the fast path),
`stream.py` (everything over TLS, and gRPC), `grpc.py`, `exec.py` with `tree.py`, `broken.py` (what cannot be asked),
`named.py` with `resolve.py` (a host name, at all of its addresses). Pure judgement: `answer.py` (an HTTP answer), `redirect.py`
(where it leads), `off_limits.py` (addresses that no probe of a name may reach).
"""
