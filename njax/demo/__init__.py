"""The bundled demo model: a tiny hybrid of the family, for trying things and for tests.

`load_demo` makes it in memory. Its weights are pseudo-random, from a fixed seed: it speaks in
tongues, but runs the same code as a real model: gated delta layers and gated attention, tool
calls and thinking in the template, special tokens in the tokenizer.

A trained one is in the making: `data` generates its closed world, `python -m njax.demo.train`
trains it (see `training`).

`tokenizer.json` comes from `make_tokenizer`; `chat_template.jinja` is written by hand.
"""

from njax.demo.model import DEMO_CONFIG, MODEL_NAME, load_demo

__all__ = ["DEMO_CONFIG", "MODEL_NAME", "load_demo"]
