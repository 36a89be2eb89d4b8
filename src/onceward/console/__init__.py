"""What a person sees of a store and may do to it: one set of questions, answers and actions.

The REST API, the dashboard and the command line all stand on it, so that the same thing has the same
name, the same shape and the same redaction everywhere. `LocalConsole` answers from an open app,
`RemoteConsole` over the REST API of another one.
"""
