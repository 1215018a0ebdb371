"""The HTTP server: protocols in front of an `njax.engine.engine.Engine`.

`app.create_app` makes the Litestar application; `bridge` carries events from the engine's thread to
the event loop; `sse` writes streams; `protocols` holds wire types and their translation, a file or
a folder a protocol; `routes` are thin handlers. `njax serve` starts it, see `njax.cli.serve`.
"""
