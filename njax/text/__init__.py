"""Text on its way in and out of the model.

- `tokenizer`: `Tokenizer` over a `tokenizer.json`; `tiktoken_ranks` converts tiktoken vocabularies.
- `detokenizer`: tokens to text, incrementally and exactly.
- `stop`: stop strings over streamed text.
- `reasoning`, `tool_calls`: thinking, answer and calls told apart while the text arrives.
- `messages`: chat messages as clients send them, brought into the one form templates expect.
- `sandbox`, `chat_template`: Jinja templates from checkpoints, run without trusting them.
- `prompt`: messages to a prompt: text, token ids and the frontiers worth a snapshot.

Imports neither JAX nor the engine: all of it is host work and safe to call from any thread, except
that one `Detokenizer`, `StopStrings` or `AnswerStream` belongs to one stream.
"""

from __future__ import annotations
