"""Signatures of thinking blocks, so that a client can send them back and we know our own.

It proves no authority, only that the text is one that this kind of server wrote, unchanged: a
digest with a fixed key, so that it holds across restarts and machines.
"""

from __future__ import annotations

import hmac
from typing import Any

_KEY = b"njax thinking block"
_PREFIX = "njax1-"


def sign(thinking: str) -> str:
    """The signature of a thinking block's text."""
    digest = hmac.digest(_KEY, thinking.encode("utf-8", "surrogatepass"), "sha256")
    return _PREFIX + digest.hex()


def is_ours(thinking: str, signature: Any) -> bool:
    """Whether `sign` made this signature for this text."""
    return isinstance(signature, str) and hmac.compare_digest(
        signature.encode("utf-8", "surrogatepass"), sign(thinking).encode()
    )
