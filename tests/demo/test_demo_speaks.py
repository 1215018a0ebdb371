"""The demo's greedy answer: finite, printable, and not one token for ever."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from njax.config import BLOCK
from njax.demo import load_demo
from njax.models.params import bind
from njax.state import init_state
from njax.text.chat_template import ChatTemplate
from njax.text.prompt import render_prompt
from njax.text.tokenizer import Tokenizer


def test_greedy_answer():
    demo = load_demo()
    tokenizer = Tokenizer.from_json(demo.tokenizer_json)
    template = ChatTemplate(demo.chat_template, demo.tokenizer_config)
    ids = list(
        render_prompt(tokenizer, template, [{"role": "user", "content": "Hello!"}]).token_ids
    )
    assert len(ids) <= BLOCK
    graphdef, params = bind(demo.config, jnp.dtype(demo.dtype), demo.params)

    @jax.jit
    def step(params, tokens, start, length, state):
        model = nnx.merge(graphdef, params)
        positions = jnp.broadcast_to(start + jnp.arange(tokens.shape[1]), (3, *tokens.shape))
        pages = jnp.array([[1, 2]], jnp.int32)
        hidden, state = model(
            tokens, positions.astype(jnp.int32), state, pages, start[None], length[None]
        )
        last = jax.lax.dynamic_slice_in_dim(hidden[0], length - 1, 1)
        return model.logits(last)[0], state

    def integer(value):
        return jnp.asarray(value, jnp.int32)

    state = init_state(demo.config, batch=1, pages=3, dtype=jnp.dtype(demo.dtype))
    padded = integer([ids + [0] * (BLOCK - len(ids))])
    logits, state = step(params, padded, integer(0), integer(len(ids)), state)
    answer = []
    for position in range(len(ids), len(ids) + 40):
        values = np.asarray(logits)
        assert np.isfinite(values).all()
        assert 1.0 < values.std() < 6.0
        answer.append(int(values.argmax()))
        logits, state = step(params, integer([[answer[-1]]]), integer(position), integer(1), state)
    assert len(set(answer)) > 20
    assert tokenizer.decode(answer).replace("\n", "").isprintable()
