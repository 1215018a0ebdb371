"""Models on disk: reading Hugging Face checkpoints, writing and loading njax's own.

A conversion is a plan and a stream. `convert.py` looks a source over (`safetensors_files.py` reads
headers and rows, `hf.py` maps names, `layout.py` says what the model needs, `formats.py` with
`modelopt.py` and `compressed_tensors.py` decides each matrix's number format) and makes a list of
`PlannedTensor`s (`plan.py`, `planned.py`, `requantize.py`) whose arrays are still unread
(`lazy.py`). `orbax.py` writes them block by block as an ordinary orbax checkpoint.

An njax checkpoint is a directory:

    params/                 orbax checkpoint, one zarr array each: `NAME`, or `NAME.codes`,
                            `NAME.scales`, `NAME.global_scale` (NVFP4), `NAME.values`, `NAME.scale`
                            (FP8), and `extra.*`: tensors carried along untouched, of which
                            `mtp.py` reads the multi-token layer's
    manifest.json           config, numeric profile, source digests (`manifest.py`)
    tokenizer.json  tokenizer_config.json  chat_template.jinja  generation_config.json

It appears under its name whole or not at all. Nothing outside this package and
`ModelConfig.from_hf` knows Hugging Face names.
"""

from njax.checkpoint.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from njax.checkpoint.convert import convert_checkpoint, open_source

__all__ = [
    "Checkpoint",
    "convert_checkpoint",
    "load_checkpoint",
    "open_source",
    "save_checkpoint",
]
