"""The name of a prefix: one hash for every 64-token block, each chained to the one before.

Equal names mean equal model, numeric profile, tenant and tokens. A store still compares the
tokens themselves on a hit, so that a collision can never leak one prompt into another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from njax.config import BLOCK

DIGEST_BYTES = 16


def root_digest(*, fingerprint: str, profile: str, tenant: str) -> bytes:
    """The chain's start: what a prefix depends on besides its tokens.

    Args:
      fingerprint: identifies the weights.
      profile: numeric profile (dtypes of activations, weights, KV and state).
      tenant: name that separates callers who must not share prefixes.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"njax-prefix-v1")
    for part in (fingerprint, profile, tenant):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))  # lengths keep ("ab","c") from ("a","bc")
        digest.update(data)
    return digest.digest()


def block_digests(root: bytes, token_ids: Sequence[int]) -> list[bytes]:
    """Chain digests after 1, 2, ... whole blocks of `token_ids`; a partial block has none."""
    tokens = np.asarray(token_ids, dtype="<u4")
    digests = []
    digest = root
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        block = tokens[end - BLOCK : end].tobytes()
        digest = hashlib.blake2b(digest + block, digest_size=DIGEST_BYTES).digest()
        digests.append(digest)
    return digests
