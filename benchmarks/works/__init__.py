"""Our side of each work: one module a work, each run in a process of its own."""
