"""Names of the facts about a request that logs, usage and metrics all carry.

Spelled here once, so that what a client reads and what an operator reads cannot drift apart. The
values of `PREFIX_REUSE_PATH` are those of `njax.engine.types.ReusePath`.
"""

from __future__ import annotations

PROMPT_TOKENS = "prompt_tokens"
COMPLETION_TOKENS = "completion_tokens"
TOTAL_TOKENS = "total_tokens"
CACHED_TOKENS = "cached_tokens"
REASONING_TOKENS = "reasoning_tokens"
PREFIX_CACHE_HIT_TOKENS = "prefix_cache_hit_tokens"
PREFIX_REUSE_PATH = "prefix_reuse_path"
DRAFT_N = "draft_n"
DRAFT_N_ACCEPTED = "draft_n_accepted"
