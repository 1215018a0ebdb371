"""`ChatTemplate`: a checkpoint's chat template, applied to messages.

The environment is what Hugging Face templates are written for: `trim_blocks`, `lstrip_blocks`,
loop controls, `raise_exception`, `strftime_now`, a `tojson` that leaves HTML and non-ASCII letters
alone, `{% generation %}`, and the special tokens of `tokenizer_config.json` by name (`bos_token`).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.meta

from njax.errors import CheckpointError, InvalidRequest
from njax.text.messages import Message, normalize_messages
from njax.text.sandbox import MAX_SOURCE, MAX_TEXT, BudgetExceeded, Sandbox
from njax.text.tokenizer import token_content

_OWN_NAMES = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


class ChatTemplate:
    """A compiled template; safe to share between threads.

    Attributes:
      options: names that the template reads besides messages, tools and the like: the keywords
        that `render` can honour. Keywords outside it have no effect.
    """

    def __init__(
        self,
        source: str | Sequence[Mapping[str, str]],
        tokenizer_config: Mapping[str, Any] | None = None,
    ):
        """
        Args:
          source: the template, or the list of named templates that some checkpoints carry
            (`tool_use` serves requests with tools, `default` the others).
          tokenizer_config: `tokenizer_config.json`, for the special tokens.

        Raises:
          CheckpointError: the template is not valid Jinja, or there is none by the name "default".
        """
        self._environment = Sandbox()
        self._environment.filters["tojson"] = self._environment.guarded("tojson", _tojson)
        self._environment.globals.update(raise_exception=_raise, strftime_now=_strftime_now)
        self._tokens = {
            name: content
            for name in _TOKEN_NAMES
            if (content := token_content((tokenizer_config or {}).get(name))) is not None
        }
        named = {"default": source} if isinstance(source, str) else _named(source)
        self._templates = {name: self._compile(name, text) for name, text in named.items()}
        known = {*_OWN_NAMES, *_TOKEN_NAMES, *self._environment.globals}
        self.options = frozenset(
            name
            for text in named.values()
            for name in jinja2.meta.find_undeclared_variables(self._environment.parse(text))
            if name not in known
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> str:
        """The prompt text for messages as a client sends them.

        Args:
          messages: see `njax.text.messages`; they are normalised first.
          tools: tool declarations, passed on as they are; an empty list is the same as None.
          add_generation_prompt: end with the opening of the assistant's turn.
          **options: e.g. `enable_thinking`; None leaves an option unset.

        Raises:
          InvalidRequest: malformed messages, or the template refuses or fails on them.
        """
        return self.render_normalized(
            normalize_messages(messages), tools, add_generation_prompt, **options
        )

    def render_normalized(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> str:
        """Like `render`, for messages that `normalize_messages` returned."""
        taken = sorted({*_OWN_NAMES, *self._environment.globals} & set(options))
        if taken:
            raise InvalidRequest(f"{taken[0]!r} cannot be a template option", param=taken[0])
        variables = {
            **self._tokens,
            **{name: value for name, value in options.items() if value is not None},
            "messages": messages,
            "tools": _checked_tools(tools),
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        name = "tool_use" if tools and "tool_use" in self._templates else "default"
        return self._run(self._templates[name], variables)

    def _run(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        size = 0
        try:
            with self._environment.budget():
                for piece in template.generate(variables):
                    size += len(piece)
                    if size > MAX_TEXT:
                        raise BudgetExceeded("it makes more text than any prompt needs")
                    pieces.append(piece)
        except _Refused as error:
            _fail(f"refuses these messages: {error}")
        except BudgetExceeded as error:
            _fail(f"was stopped: {error}")
        except jinja2.exceptions.SecurityError as error:
            _fail(f"tried something that templates may not do: {error}")
        except (RecursionError, MemoryError) as error:
            _fail(f"was stopped: {type(error).__name__}")
        except Exception as error:  # a program from outside may fail in any way
            _fail(f"failed on these messages: {type(error).__name__}: {error}")
        return "".join(pieces)

    def _compile(self, name: str, source: str) -> jinja2.Template:
        if len(source) > MAX_SOURCE:
            raise CheckpointError(
                f"the chat template {name!r} has {len(source)} characters, "
                f"more than the {MAX_SOURCE} that are accepted"
            )
        try:
            return self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(
                f"the chat template {name!r} is not valid Jinja: line {error.lineno}: "
                f"{error.message}"
            ) from None
        except (RecursionError, MemoryError, ValueError, SyntaxError) as error:
            raise CheckpointError(
                f"the chat template {name!r} cannot be compiled: {type(error).__name__}"
            ) from None


class _Refused(Exception):
    """`raise_exception` was called."""


def _raise(message: object = "no reason given") -> NoReturn:
    raise _Refused(str(message)[:1000])


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(str(pattern)[:200])


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _fail(problem: str) -> NoReturn:
    raise InvalidRequest(f"the chat template {problem}"[:2000], param="messages") from None


def _named(source: Any) -> dict[str, str]:
    named: dict[str, str] = {}
    for entry in source if isinstance(source, Sequence) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("template"), str):
            named[str(entry.get("name"))] = entry["template"]
    if "default" not in named:
        raise CheckpointError(
            "the chat template must be a text, or a list of named templates with a 'default'"
        )
    return named


def _checked_tools(
    tools: Sequence[Mapping[str, Any]] | None,
) -> Sequence[Mapping[str, Any]] | None:
    if not tools:
        return None
    if isinstance(tools, Mapping | str) or not all(isinstance(tool, Mapping) for tool in tools):
        raise InvalidRequest("tools must be a list of objects", param="tools")
    return tools
