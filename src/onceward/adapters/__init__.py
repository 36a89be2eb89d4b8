"""One module a web framework, each with the same verbs."""
