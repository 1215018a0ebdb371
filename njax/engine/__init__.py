"""The engine: lanes, jitted steps, one device thread.

`types` is what callers exchange with it (plain dataclasses), `engine` the facade, `executor` the
device thread, `scheduler` what runs next, `steps` the jitted programs, `programs` their
compilation, `sampling` the choice of a token, `speculative` the rounds that draft (`drafts` what
the multi-token layer does in them), `host_step` a step's results on the host.
"""
