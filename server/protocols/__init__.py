"""Wire formats. A file or a folder a protocol: types, validation, translation, order of events.

A protocol's field names appear nowhere else. `errors` maps the engine's error codes to statuses and
bodies.
"""
