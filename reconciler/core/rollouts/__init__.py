"""Which revision of a workload has the traffic, which one is next, and how one replaces the other."""
