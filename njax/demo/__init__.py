"""The bundled demo model: a small trained hybrid of the family, for showing and for tests.

`load_demo` loads it from one of two archives: `demo-nvfp4.zip`, which is served, and
`demo-bf16.zip`, the same weights before they were quantised. `MODEL_CARD.md` says what it can do
and what it cannot.

`data` generates the closed world that it was trained on, `python -m njax.demo.train` trains it
(see `training`), `python -m njax.demo.training.score` scores it.
"""

from njax.demo.model import ARCHIVES, MODEL_NAME, demo_directory, load_demo

__all__ = ["ARCHIVES", "MODEL_NAME", "demo_directory", "load_demo"]
