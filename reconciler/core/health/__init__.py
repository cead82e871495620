"""Whether one container is ready and alive: facts first, then overrides, its own pushes and probes."""
