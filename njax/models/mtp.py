"""The multi-token layer: from the hidden state of one token and the next token, the one after.

With h_t the decoder's hidden state of token t (after its final norm) and e the embedding:

    m_t = norm(layer(fc([norm_e(e(x_{t+1})) | norm_h(h_t)])))

and the model's own head makes of m_t the logits of x_{t+2}. The layer is one of gated full
attention with a KV cache of its own; entry t has the rotary position p_t, that of token t. To draft
further, m_t takes the place of h and the drafted token that of x_{t+1}, one position on. (As in the
family's checkpoints, `mtp.*`, and their public loaders.)

Names: `mtp.fc`, `mtp.pre_fc_norm_embedding`, `mtp.pre_fc_norm_hidden`, `mtp.layers.0.*` and
`mtp.norm`; embedding and head are the decoder's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from njax.config import ModelConfig
from njax.models.hybrid import HybridLayer
from njax.models.linear import Linear
from njax.models.norm import RMSNorm
from njax.models.params import bind_module, params_of
from njax.models.rope import rotary_angles
from njax.state import KVPages

PREFIX = "mtp."

FIRST = 1
"""Where the engine keeps entry t in its pages: at FIRST + t, beside token t + 1, which it embeds.

So a page's entries depend on the tokens up to the page's end alone, and sequences with a common
head can share it; slot 0 stays empty.
"""


class MultiTokenLayer(nnx.Module):
    """Embedded next tokens and hidden states in, hidden states of the tokens after out."""

    def __init__(self, config: ModelConfig, *, dtype: Any, rngs: nnx.Rngs):
        self.config = config
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.pre_fc_norm_embedding = RMSNorm(hidden, eps, dtype=dtype)
        self.pre_fc_norm_hidden = RMSNorm(hidden, eps, dtype=dtype)
        self.fc = Linear(2 * hidden, hidden, dtype=dtype, rngs=rngs)
        self.layers = nnx.List([HybridLayer(config, "attention", dtype=dtype, rngs=rngs)])
        self.norm = RMSNorm(hidden, eps, dtype=dtype)

    def __call__(
        self,
        embedded: jax.Array,
        hidden: jax.Array,
        positions: jax.Array,
        pages: KVPages,
        page_table: jax.Array,
        start: jax.Array,
        lengths: jax.Array,
        *,
        first: int = 0,
    ) -> tuple[jax.Array, KVPages]:
        """Absorbs the first lengths[b] of T tokens of each of B sequences.

        Args:
          embedded: [B, T, hidden], embeddings of the tokens after.
          hidden: [B, T, hidden], the decoder's hidden states (or this layer's, to draft further).
          positions: int32 [3, B, T], of the tokens that `hidden` belongs to.
          pages, page_table, start, lengths: this layer's share of the pool, as in the decoder.
          first: the first slot of the pages that holds an entry.

        Returns: [B, T, hidden] for the head, and the pool with the new tokens.
        """
        config, layer = self.config, self.layers[0]
        angles = rotary_angles(
            positions, config.rotary_dim, config.rope_theta, config.mrope_section
        )
        joined = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)]
        x = self.fc(jnp.concatenate(joined, axis=-1))
        mixed, pages = layer.attention(
            layer.input_norm(x), angles, pages, page_table, start, lengths, first=first
        )
        x = x + mixed
        x = x + layer.mlp(layer.post_norm(x))
        return self.norm(x), pages


def abstract_mtp_params(config: ModelConfig, dtype: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Names (with `mtp.`), shapes and dtypes of the layer's parameters; nothing is allocated."""
    return {PREFIX + name: value for name, value in params_of(_abstract(config, dtype)).items()}


def bind_mtp(
    config: ModelConfig, dtype: Any, params: Mapping[str, Any]
) -> tuple[nnx.GraphDef, nnx.State]:
    """The layer with these parameters (names with `mtp.`), split for jitted steps; as `bind`."""
    own = {name.removeprefix(PREFIX): weight for name, weight in params.items()}
    return bind_module(_abstract(config, dtype), own)


def _abstract(config: ModelConfig, dtype: Any) -> MultiTokenLayer:
    return nnx.eval_shape(lambda: MultiTokenLayer(config, dtype=dtype, rngs=nnx.Rngs(0)))
