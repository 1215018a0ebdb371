"""Golden checkpoints, logits and greedy answers of tiny random hybrids, by transformers.

Run by hand (see README.md here). For each configuration it writes a directory that
`save_pretrained` made and `golden.npz` with, for every prompt p: `tokens_p`, `logits_p` (float32,
all positions) and `bf16_distance_p` (relative distance of transformers' own bfloat16 logits);
`batch_*`, the same for a right-padded batch; and `generate_*`, greedy answers with their margins.

`golden.json` beside it has the rest, small enough to read: `bf16_median_distance`, for every prompt
the median over its positions of the distance that `bf16_distance_p` takes over all; the step by
step choices and margins of transformers' bfloat16 model along the greedy answers,
`generate_bf16_*`; `axes_*`, positions that differ by axis for the prompt of 65 tokens and the
logits of its last one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
)

LENGTHS = (1, 2, 63, 64, 65, 200)
BATCH = (5, 64, 130)
GENERATE = (3, 64, 130)
NEW_TOKENS = 64

D, A = "linear_attention", "full_attention"
BASE = dict(
    vocab_size=160, hidden_size=48, intermediate_size=80, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, linear_conv_kernel_dim=4, linear_key_head_dim=16,
    linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=2,
    max_position_embeddings=4096, rms_norm_eps=1e-6, tie_word_embeddings=False,
    pad_token_id=None, bos_token_id=None, eos_token_id=None,
)  # fmt: skip


def rope(theta: float, factor: float) -> dict:
    return {
        "rope_type": "default", "rope_theta": theta, "partial_rotary_factor": factor,
        "mrope_section": [2, 1, 1],
    }  # fmt: skip


CONFIGS = {
    "ratio1": dict(layer_types=[D, D, D, A], rope_parameters=rope(1e4, 0.25)),
    "ratio2_tied": dict(
        layer_types=[A, D, D, A], linear_num_value_heads=4, head_dim=32, num_key_value_heads=1,
        rope_parameters=rope(1e6, 0.5), tie_word_embeddings=True,
    ),
    "ratio3_conv3": dict(
        layer_types=[D, A, D], linear_num_key_heads=1, linear_num_value_heads=3,
        linear_conv_kernel_dim=3, num_attention_heads=3, num_key_value_heads=3,
        rope_parameters=rope(1e7, 1.0),
    ),
    "wide_values_conv2": dict(
        layer_types=[D, D, A], linear_value_head_dim=32, linear_num_value_heads=4,
        linear_conv_kernel_dim=2, rope_parameters=rope(1e4, 0.25),
    ),
    "wide_keys": dict(
        layer_types=[D, D, A, A], linear_key_head_dim=32, linear_num_key_heads=1,
        linear_num_value_heads=2, num_attention_heads=6, num_key_value_heads=2, head_dim=24,
        rope_parameters=rope(5e5, 0.5),
    ),
    "multimodal": dict(
        layer_types=[D, D, D, A], linear_num_value_heads=6, rope_parameters=rope(1e7, 0.25),
    ),
    "chat": dict(
        vocab_size=264, layer_types=[D, D, D, A], linear_num_value_heads=4,
        rope_parameters=rope(1e7, 0.25),
    ),
}  # fmt: skip

VISION = dict(
    depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4, out_hidden_size=48,
    num_position_embeddings=16,
)  # fmt: skip

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATS = (
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "You are terse. " * 24},
        {"role": "user", "content": "Größe? \U0001f600"},
    ],
    [
        {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "and 2+2?"},
    ],
)


def build(name: str, options: dict, seed: int):
    """A model whose outputs are not degenerate: every parameter matters and logits spread."""
    torch.manual_seed(seed)
    text = Qwen3_5TextConfig(
        **{**BASE, "num_hidden_layers": len(options["layer_types"]), **options}
    )
    if name == "multimodal":
        config = Qwen3_5Config(text_config=text.to_dict(), vision_config=VISION)
        model = Qwen3_5ForConditionalGeneration(config)
    else:
        model = Qwen3_5ForCausalLM(text)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("A_log"):
                parameter.copy_(torch.empty_like(parameter).uniform_(-3.0, 1.0))
            elif key.endswith("dt_bias"):
                parameter.normal_(0.0, 0.5)
            elif "norm" in key:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif parameter.ndim == 1:
                parameter.normal_(0.0, 0.1)
            elif "embed" in key or "lm_head" in key:
                parameter.normal_(0.0, 0.6)
            else:
                parameter.normal_(0.0, 1.2 * parameter[0].numel() ** -0.5)
    return model.eval()


def logits(
    model, tokens: np.ndarray, mask: np.ndarray | None = None, positions: np.ndarray | None = None
) -> np.ndarray:
    with torch.no_grad():
        out = model(
            input_ids=torch.from_numpy(tokens),
            attention_mask=None if mask is None else torch.from_numpy(mask),
            position_ids=None if positions is None else torch.from_numpy(positions)[:, None],
            use_cache=False,
        )
    return out.logits.float().numpy()


def distance(a: np.ndarray, b: np.ndarray) -> np.float64:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def greedy(model, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """64 greedy tokens and, at each step, best minus second best logit."""
    ids = torch.from_numpy(tokens)[None]
    # An explicit mask: otherwise generate() takes every pad id in a random prompt for padding.
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False,
        return_dict_in_generate=True, output_logits=True, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    best = torch.stack([step[0] for step in out.logits]).float().topk(2, dim=-1).values
    answer = out.sequences[0, len(tokens) :].numpy()
    assert len(answer) == NEW_TOKENS
    return answer.astype(np.int32), (best[:, 0] - best[:, 1]).numpy()


def choices(model, prompt: np.ndarray, answer: np.ndarray) -> tuple[list[int], list[float]]:
    """What `model` would choose at each step of a given answer, and by which margin."""
    rows = logits(model, np.concatenate([prompt, answer])[None])[0, len(prompt) - 1 : -1]
    best = np.sort(rows, axis=-1)
    return rows.argmax(-1).tolist(), (best[:, -1] - best[:, -2]).round(5).tolist()


def axes_of_an_image(length: int) -> np.ndarray:
    """Positions [3, length] of text around an image of 5 x 6 tokens, and text again."""
    before, rows, columns = 8, 5, 6
    row, column = np.divmod(np.arange(rows * columns), columns)
    image = before + np.stack([np.zeros_like(row), row, column])
    after = image.max() + 1 + np.arange(length - before - rows * columns)
    return np.concatenate(
        [np.tile(np.arange(before), (3, 1)), image, np.tile(after, (3, 1))], axis=1
    )


def chat_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=TEMPLATE)


def main(root: Path) -> None:
    rng = np.random.default_rng(20261201)
    for seed, (name, options) in enumerate(CONFIGS.items()):
        model = build(name, options, seed)
        vocab = options.get("vocab_size", BASE["vocab_size"])
        golden: dict[str, np.ndarray] = {}
        facts: dict[str, Any] = {"bf16_median_distance": {}}
        half = build(name, options, seed).to(torch.bfloat16)
        for length in LENGTHS:
            tokens = rng.integers(0, vocab, length)
            exact = logits(model, tokens[None])[0]
            golden[f"tokens_{length}"] = tokens.astype(np.int32)
            golden[f"logits_{length}"] = exact
            rounded = logits(half, tokens[None])[0]
            golden[f"bf16_distance_{length}"] = distance(rounded, exact)
            rows = [distance(*pair) for pair in zip(rounded, exact, strict=True)]
            facts["bf16_median_distance"][str(length)] = round(float(np.median(rows)), 5)
        lengths = np.array(BATCH)
        tokens = rng.integers(0, vocab, (len(BATCH), max(BATCH)))
        mask = (np.arange(max(BATCH)) < lengths[:, None]).astype(np.int64)
        exact = logits(model, tokens * mask, mask)
        golden["batch_tokens"] = (tokens * mask).astype(np.int32)
        golden["batch_lengths"] = lengths.astype(np.int32)
        golden["batch_logits"] = np.concatenate([exact[i, :n] for i, n in enumerate(BATCH)])
        directory = root / name
        if name == "chat":
            tokenizer = chat_tokenizer()
            tokenizer.save_pretrained(directory)
            prompts = [
                np.array(
                    tokenizer.apply_chat_template(
                        chat, add_generation_prompt=True, return_dict=False
                    )
                )
                for chat in CHATS
            ]
            (directory / "chats.json").write_text(json.dumps(CHATS, indent=1) + "\n")
        else:
            prompts = [rng.integers(0, vocab, length) for length in GENERATE]
        for index, prompt in enumerate(prompts):
            answer, margin = greedy(model, prompt)
            golden[f"generate_prompt_{index}"] = prompt.astype(np.int32)
            golden[f"generate_tokens_{index}"] = answer
            golden[f"generate_margin_{index}"] = margin
            chosen, rounded_margin = choices(half, prompt, answer)
            facts[f"generate_bf16_tokens_{index}"] = chosen
            facts[f"generate_bf16_margin_{index}"] = rounded_margin
        axes = axes_of_an_image(65)
        turned = logits(model, golden["tokens_65"].astype(np.int64)[None], positions=axes)[0, -1]
        facts["axes_positions"] = axes.tolist()
        facts["axes_logits"] = [float(value) for value in turned]
        model.save_pretrained(directory)
        (directory / "golden.json").write_text(json.dumps(facts) + "\n")
        np.savez_compressed(directory / "golden.npz", **golden)
        worst = max(float(golden[f"bf16_distance_{n}"]) for n in LENGTHS)
        spread = golden["logits_200"].std()
        print(f"{name}: logits std {spread:.2f}, bf16 distance {worst:.4f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
