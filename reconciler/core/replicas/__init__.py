"""The containers of workloads: which are ours, what each is for, and how many replicas are available."""
