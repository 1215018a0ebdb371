"""The trainer's forward pass against the inference modules: the same model, float32."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from njax.config import BLOCK, ModelConfig
from njax.demo.training import forward
from njax.demo.training.delta_rule import CHUNK, unit_lower_inverse
from njax.models.hybrid import HybridModel
from njax.models.mtp import PREFIX, MultiTokenLayer, abstract_mtp_params
from njax.models.params import params_of
from njax.state import init_state


def config(**changes) -> ModelConfig:
    values = dict(
        vocab_size=96, hidden_size=32, intermediate_size=48,
        layer_kinds=("delta", "delta", "attention") * 2, num_heads=4, num_kv_heads=2,
        head_dim=16, rotary_dim=8, rope_theta=1e4, mrope_section=(2, 1, 1), delta_key_heads=2,
        delta_value_heads=4, delta_key_dim=16, delta_value_dim=8, conv_width=4, rms_norm_eps=1e-6,
        max_position=4096, tied_head=True, mtp_layers=1,
    )  # fmt: skip
    return ModelConfig(**{**values, **changes})


CONFIGS = {
    "tied": config(),
    "head": config(tied_head=False, layer_kinds=("delta", "attention", "delta")),
    "one_group": config(delta_key_heads=4, conv_width=3, layer_kinds=("attention", "delta")),
}


def randomized(model, seed: int):
    """Every parameter moved, so that norms, decays and biases matter too."""
    rng = np.random.default_rng(seed)
    graphdef, state = nnx.split(model)
    state = jax.tree.map(
        lambda x: x + jnp.asarray(0.1 * rng.standard_normal(x.shape), x.dtype), state
    )
    return nnx.merge(graphdef, state)


ROW = 3 * BLOCK


@nnx.jit
def expected(model: HybridModel, layer: MultiTokenLayer, row: jax.Array, length: jax.Array):
    """Hidden states, logits and logits of drafts of one sequence by the inference modules."""
    pages = ROW // BLOCK
    state = init_state(model.config, batch=1, pages=pages + 1, dtype=jnp.dtype("float32"))
    table = jnp.arange(1, pages + 1, dtype=jnp.int32)[None]
    place = (table, jnp.zeros(1, jnp.int32), length[None])
    positions = jnp.broadcast_to(jnp.arange(ROW, dtype=jnp.int32), (3, 1, ROW))
    hidden, state = model(row[None], positions, state, *place)
    embedded = model.embedding.lookup(jnp.roll(row, -1)[None], jnp.float32)
    drafted, _ = layer(embedded, hidden, positions, state.kv[0], *place)
    return hidden[0], model.logits(hidden)[0], model.logits(drafted)[0]


def distance(a, b) -> float:
    return float(np.linalg.norm(np.asarray(a) - np.asarray(b)) / np.linalg.norm(b))


@pytest.mark.parametrize("name", CONFIGS)
def test_packed_rows_equal_single_sequences(name):
    shape = CONFIGS[name]
    model = randomized(HybridModel(shape, dtype=jnp.float32, rngs=nnx.Rngs(1)), 2)
    layer = randomized(MultiTokenLayer(shape, dtype=jnp.float32, rngs=nnx.Rngs(3)), 4)
    params = params_of(model) | {PREFIX + n: p for n, p in params_of(layer).items()}
    rng = np.random.default_rng(5)
    tokens = np.zeros((2, ROW), np.int32)
    segments = np.zeros((2, ROW), np.int32)
    # Boundaries within a chunk, at one, and a conversation over several chunks.
    spans = [(0, 0, 5), (0, 5, 64), (0, 64, 190), (1, 0, 130), (1, 130, 131), (1, 131, 192)]
    for number, (row, first, end) in enumerate(spans):
        tokens[row, first:end] = rng.integers(0, shape.vocab_size, end - first)
        segments[row, first:end] = number + 1

    @jax.jit
    def run(params, tokens, segments):
        hidden = forward.decode(params, shape, tokens, segments)
        drafted = forward.draft(params, shape, hidden, jnp.roll(tokens, -1, axis=1), segments)
        return hidden, *(forward.logits(params, shape, x) for x in (hidden, drafted))

    hidden, logits, drafts = run(params, tokens, segments)
    for row, first, end in spans:
        length = end - first
        padded = np.zeros(ROW, np.int32)
        padded[:length] = tokens[row, first:end]
        want = expected(model, layer, jnp.asarray(padded), jnp.int32(length))
        assert distance(hidden[row, first:end], want[0][:length]) < 1e-5
        assert distance(logits[row, first:end], want[1][:length]) < 1e-5
        if length > 1:  # the last token has no next one
            assert distance(drafts[row, first : end - 1], want[2][: length - 1]) < 1e-5


def test_names_of_the_multi_token_layer():
    layer = MultiTokenLayer(CONFIGS["tied"], dtype=jnp.float32, rngs=nnx.Rngs(0))
    names = {PREFIX + name for name in params_of(layer)}
    assert names == set(abstract_mtp_params(CONFIGS["tied"], jnp.float32))
    assert {"mtp.fc.weight", "mtp.norm.weight", "mtp.layers.0.attention.q_proj.weight"} <= names


def test_gradient_of_the_inverse():
    rng = np.random.default_rng(0)
    strict = jnp.asarray(np.tril(rng.standard_normal((CHUNK, CHUNK)) * 0.2, -1), jnp.float32)
    probe = jnp.asarray(rng.standard_normal((CHUNK, CHUNK)), jnp.float32)

    def by_solving(x):
        return jnp.sum(probe * jnp.linalg.inv(jnp.eye(CHUNK, dtype=jnp.float32) + jnp.tril(x, -1)))

    want = jax.grad(by_solving)(strict)
    found = jax.grad(lambda x: jnp.sum(probe * unit_lower_inverse(x)))(strict)
    assert distance(found, np.asarray(want)) < 1e-4
