"""The engine: lanes, jitted steps, one device thread.

`types` is what callers exchange with it (plain dataclasses), `engine` the facade, `executor` the
device thread, `scheduler` what runs next, `steps` the jitted programs, `sampling` the choice of a
token.
"""
