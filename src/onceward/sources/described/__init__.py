"""The machinery of `Generic`: a scheme as data, and what verifies, reads and answers by it."""
