"""The deciding half: pure functions from (desired, observed, now) to a decision. No I/O, clock, chance or logging."""
