"""The true story of ``onceward demo``: a shop is killed between a charge and its checkpoint.

Read `shop` first: it is the app, as a user would write it. `payments` is the service that it
charges cards at, a process of its own. `plan` is what the seed decides, `sender` plays the
providers, `story` starts, kills and starts again, `verdict` compares what was counted.
"""
