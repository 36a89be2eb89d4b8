"""``onceward check``: reads an app's source, without importing it, for what a crash would do twice."""
