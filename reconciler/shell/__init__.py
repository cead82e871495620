"""The impure part of the loop: clocks, state on disk, the lock, triggers, logs, looks and actions."""
