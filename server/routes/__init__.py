"""Handlers, thin: read the request, call a protocol, answer."""
