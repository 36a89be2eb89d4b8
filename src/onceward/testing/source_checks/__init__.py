"""What every source must do, topic by topic; see `onceward.testing.source_suite`."""
