"""Tool calls and reasoning in a model's text, as events. Depends on nothing but text.

- `stream`: `AnswerStream`, text deltas to events; `parse_answer`, the same for a whole text.
- `events`: the event types, and `collect`, which puts a whole answer together from them.
- `automaton`: `ToolCallParser`: what is a call and what is content; `call`, one
  call on its way; `content`, the text around calls.
- `tags`: the tags in text that comes in pieces; `tolerant`, the near misses that may count.
- `xml_form`, `xml_call`, `json_form`, `json_call`: the two forms of calls.
- `schema`, `values`: declared types, and texts to values of these types.
- `writer`: arguments as JSON text that grows. `shape`: a dropped call without its words.
"""

from __future__ import annotations

from njax.text.tool_calls.automaton import ToolCallParser
from njax.text.tool_calls.events import (
    Answer,
    ContentDelta,
    Event,
    ReasoningDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallDropped,
    ToolCallEnd,
    ToolCallStart,
    collect,
)
from njax.text.tool_calls.stream import AnswerStream, parse_answer

__all__ = [
    "Answer",
    "AnswerStream",
    "ContentDelta",
    "Event",
    "ReasoningDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallDropped",
    "ToolCallEnd",
    "ToolCallParser",
    "ToolCallStart",
    "collect",
    "parse_answer",
]
