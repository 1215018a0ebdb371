"""Converts a tiktoken vocabulary (byte strings with ranks) to a `tokenizer.json` tokenizer.

tiktoken has no merge list: it merges the adjacent pair whose concatenation has the lowest rank.
A `tokenizers` BPE model wants pairs in order. For a vocabulary that was trained as BPE the two
agree when each token is made by the one pair that the algorithm itself reaches it by, using only
tokens of lower rank.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as _Rust
from tokenizers.models import BPE

from njax.errors import CheckpointError
from njax.text.decoders import LETTER_OF_BYTE
from njax.text.tokenizer import Tokenizer


def read_ranks(path: str | Path) -> dict[bytes, int]:
    """Reads a `.tiktoken` file: a line is a base64 token, a space and its rank.

    Raises:
      CheckpointError: the file cannot be read; names the line.
    """
    ranks: dict[bytes, int] = {}
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise CheckpointError(
                f"{path}: line {number} is not a base64 token and a rank"
            ) from None
    return ranks


def from_tiktoken(
    ranks: Mapping[bytes, int],
    pattern: str,
    special_tokens: Mapping[str, int],
    *,
    plain_added_tokens: frozenset[str] = frozenset(),
    normalize_nfc: bool = True,
) -> Tokenizer:
    """A byte-level BPE tokenizer with the same ids.

    Args:
      ranks: token bytes to rank; the rank is the id.
      pattern: regular expression that cuts text into words before merging.
      special_tokens: content to id; the ids follow the ranks without a gap.
      plain_added_tokens: those of them that are matched as a whole but are not "special", so that
        decoding keeps them (`<think>`, `<tool_call>` in the Qwen family).
      normalize_nfc: compose characters first, as the Qwen family does.

    Raises:
      CheckpointError: ids with gaps, or a token that no pair of other tokens makes.
    """
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    if [rank for _, rank in ordered] != list(range(len(ordered))):
        raise CheckpointError("tiktoken ranks must be 0, 1, 2, ... without gaps")
    letters = {token: "".join(LETTER_OF_BYTE[b] for b in token) for token in ranks}
    merges = []
    for token, rank in ordered:
        if len(token) == 1:
            continue
        pair = _last_pair(ranks, token, rank)
        if pair is not None:
            merges.append((letters[pair[0]], letters[pair[1]]))
    vocab = {letters[token]: rank for token, rank in ordered}
    # A word that is a token is that token, even if no chain of merges reaches it: tiktoken's rule.
    rust = _Rust(BPE(vocab, merges, ignore_merges=True))
    if normalize_nfc:
        rust.normalizer = normalizers.NFC()
    rust.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    rust.decoder = decoders.ByteLevel()
    by_id = sorted(special_tokens.items(), key=lambda item: item[1])
    rust.add_tokens(
        [
            AddedToken(content, normalized=False, special=content not in plain_added_tokens)
            for content, _ in by_id
        ]
    )
    for content, token_id in by_id:
        if rust.token_to_id(content) != token_id:
            raise CheckpointError(
                f"special token {content!r} would get id {rust.token_to_id(content)} instead of "
                f"{token_id}: the ids must follow the {len(ordered)} ranks without a gap"
            )
    return Tokenizer.from_json(rust.to_str())


def _last_pair(ranks: Mapping[bytes, int], token: bytes, rank: int) -> tuple[bytes, bytes] | None:
    """The two tokens that merge into `token` last, merging only below `rank`.

    None for a token that merging does not reach (it is then matched as a whole word only).
    """
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best, at = rank, -1
        for i in range(len(parts) - 1):
            merged = ranks.get(parts[i] + parts[i + 1], rank)
            if merged < best:
                best, at = merged, i
        if at < 0:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0], parts[1]
