"""The parts of the deterministic simulation; ``onceward.testing.simulate`` runs it."""
