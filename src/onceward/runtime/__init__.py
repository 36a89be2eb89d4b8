"""What carries runs to their end: the worker, the committer, leases, clocks."""
