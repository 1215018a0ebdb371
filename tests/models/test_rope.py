"""Rotary embedding against a NumPy statement of it, axis by axis and pair by pair."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from njax.models.rope import rotary_angles, rotary_axes, rotate


def turned(x, positions, rotary_dim, theta, section):
    """float64, one pair at a time. x [B, T, heads, D], positions [3, B, T]."""
    pairs = rotary_dim // 2
    out = np.array(x, np.float64)
    for pair in range(pairs):
        axis = pair % 3
        if axis and pair >= 3 * section[axis]:
            axis = 0
        angle = positions[axis] * theta ** (-2 * pair / rotary_dim)
        cos, sin = np.cos(angle)[..., None], np.sin(angle)[..., None]
        first, second = x[..., pair], x[..., pair + pairs]
        out[..., pair] = first * cos - second * sin
        out[..., pair + pairs] = second * cos + first * sin
    return out


@pytest.mark.parametrize(
    ("head_dim", "rotary_dim", "theta", "section"),
    [
        (256, 64, 1e7, (11, 11, 10)),  # the real models
        (64, 16, 1e6, (3, 3, 2)),
        (24, 12, 1e4, (2, 1, 1)),
        (16, 16, 1e4, (8, 0, 0)),  # all temporal
        (16, 4, 1e4, (11, 11, 10)),  # sections longer than the pairs there are
        (16, 2, 1e4, (2, 1, 1)),
    ],
)
def test_unequal_axes(head_dim, rotary_dim, theta, section):
    rng = np.random.default_rng(head_dim + rotary_dim)
    x = rng.normal(size=(2, 9, 3, head_dim)).astype(np.float32)
    positions = rng.integers(0, 500, (3, 2, 9)).astype(np.int32)
    angles = rotary_angles(jnp.asarray(positions), rotary_dim, theta, section)
    # An angle of 500 rad has a float32 step of 3e-5.
    np.testing.assert_allclose(
        rotate(jnp.asarray(x), *angles),
        turned(x, positions, rotary_dim, theta, section),
        atol=2e-4,
    )


def test_axes_of_the_real_models():
    """11 temporal, 11 height and 10 width pairs, interleaved."""
    axes = rotary_axes(64, (11, 11, 10))
    assert axes.tolist() == [0, 1, 2] * 10 + [0, 1]
    assert np.bincount(axes).tolist() == [11, 11, 10]


def test_only_distances_matter_and_the_rest_of_a_head_passes():
    rng = np.random.default_rng(0)
    query, key = (jnp.asarray(rng.normal(size=(1, 1, 1, 32)), jnp.float32) for _ in range(2))

    def score(at_query, at_key):
        turn = [
            rotate(x, *rotary_angles(jnp.full((3, 1, 1), at), 8, 1e4, (2, 1, 1)))
            for x, at in ((query, at_query), (key, at_key))
        ]
        np.testing.assert_array_equal(turn[0][..., 8:], query[..., 8:])
        return float(jnp.sum(turn[0] * turn[1]))

    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-4)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-3)


def test_position_zero_and_no_rotary_part_leave_a_head_as_it_is():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 1, 8)), jnp.bfloat16)
    zero = jnp.zeros((3, 1, 2), jnp.int32)
    for rotary_dim in (0, 8):
        turned_x = rotate(x, *rotary_angles(zero, rotary_dim, 1e4, (2, 1, 1)))
        assert turned_x.dtype == x.dtype
        np.testing.assert_array_equal(turned_x, x)
