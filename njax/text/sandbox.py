"""A Jinja environment for templates that nobody vouches for.

A chat template is a program inside a checkpoint. Jinja's immutable sandbox keeps it from Python's
internals and from changing its inputs, but lets it loop for ever, build strings of any size and
call filters with absurd widths. This environment adds a budget to each rendering: processor time
of the thread, characters of one string, characters made in total. Loops, macros, calls, filters
and operators that can grow a value are charged to it before they do their work. What is left to a
hostile template is to waste its few seconds.
"""

from __future__ import annotations

import functools
import re
import threading
import time
import types
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sized, ValuesView
from contextlib import contextmanager
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_environment
from jinja2.visitor import NodeTransformer

MAX_SOURCE = 1 << 20
"""Most characters of a template."""
MAX_TEXT = 1 << 24
"""Most characters of one string, the rendered prompt included."""
MAX_TOTAL = 1 << 29
"""Most characters (or list items, or steps) that one rendering may make in all."""
MAX_SECONDS = 5.0
"""Most processor time of one rendering; other threads do not count."""

_WIDE_PERCENT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(?:\*|\d{5,}|\d*\.(?:\*|\d{5,}))")
_WIDE_BRACES = re.compile(r"\{[^{}]*(?:\{|:[^{}]*\d{5,})")
_PADDING = frozenset({"center", "ljust", "rjust", "zfill"})
_NUMBERED_FILTERS = frozenset(
    {"center", "indent", "wordwrap", "truncate", "batch", "slice", "tojson"}
)
# Filters that look into a container without spelling all of it out as text.
_LAZY_FILTERS = frozenset(
    "attr batch count d default dictsort first groupby items last length list map max min reject "
    "rejectattr reverse select selectattr slice sort sum unique".split()
)


class BudgetExceeded(Exception):
    """The template wants more time or memory than any prompt needs."""


class _Budget:
    __slots__ = ("deadline", "next_look", "total")

    def __init__(self) -> None:
        self.total = 0
        self.next_look = 0
        self.deadline = time.thread_time() + MAX_SECONDS

    def charge(self, amount: int) -> None:
        self.total += amount
        if amount > MAX_TEXT or self.total > MAX_TOTAL:
            raise BudgetExceeded("it makes more text than any prompt needs")
        if self.total >= self.next_look:
            self.next_look = self.total + 64
            if time.thread_time() > self.deadline:
                raise BudgetExceeded(f"it ran for more than {MAX_SECONDS:g} s")


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's own text for training; rendering ignores it."""

    tags = {"generation"}  # noqa: RUF012 - the name and type are Jinja's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """See the module. Renders with the whitespace rules that Hugging Face templates rely on."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _GenerationTag],
            # Folding constants would run filters while the template is loaded.
            optimized=False,
            finalize=self._finalize,
        )
        self._local = threading.local()
        del self.globals["lipsum"]
        del self.filters["random"]  # equal requests must give equal prompts
        self.filters["join"] = _join
        for name, function in self.filters.items():
            self.filters[name] = self.guarded(name, function)

    @contextmanager
    def budget(self) -> Iterator[None]:
        """Gives this thread a fresh budget."""
        self._local.budget = _Budget()
        try:
            yield
        finally:
            self._local.budget = None

    def charge(self, amount: int) -> None:
        budget = getattr(self._local, "budget", None)
        if budget is not None:
            budget.charge(amount)

    # --- hooks that compiled templates call ----------------------------------------------------

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        return _Instrument().visit(tree).set_environment(self)

    def concatenate(self, *values: Any) -> str:
        """The `~` operator."""
        self.weigh(values)
        return "".join(map(str, values))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        size = 1
        if operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
            size = len(left) + len(right)
        elif operator == "*":
            if isinstance(left, int) and isinstance(right, int):
                size = left.bit_length() + right.bit_length()
                if size > 1 << 16:
                    raise BudgetExceeded("it computes with absurdly large numbers")
            else:
                for sized, count in ((left, right), (right, left)):
                    if isinstance(sized, Sized) and isinstance(count, int):
                        size = len(sized) * max(count, 0)
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int):
                if left.bit_length() * abs(right) > 1 << 12:
                    raise BudgetExceeded("it computes with absurdly large numbers")
        elif operator == "%" and isinstance(left, str | bytes):
            if _WIDE_PERCENT.search(str(left)):
                raise BudgetExceeded("it formats with an absurdly large width")
            self.weigh(right)
            size = len(left)
        self.charge(size)
        return super().call_binop(context, operator, left, right)

    # Positional-only names, so that a template's keyword arguments cannot collide with them.
    def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.charge(1)
        if isinstance(function, types.BuiltinMethodType):
            args = self._check_method(function, args, kwargs)
        result = super().call(context, function, *args, **kwargs)
        if isinstance(result, str | bytes | list | tuple):
            self.charge(len(result))
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        inner = super().wrap_str_format(value)
        if inner is None:
            return None
        plain = value.__self__.replace("{{", "").replace("}}", "")

        @functools.wraps(inner)
        def checked(*args: Any, **kwargs: Any) -> str:
            if _WIDE_BRACES.search(plain):  # a width, or one that is itself a value
                raise BudgetExceeded("it formats with an absurdly large width")
            self.weigh((args, kwargs))
            return inner(*args, **kwargs)

        return checked

    # --- limits --------------------------------------------------------------------------------

    def _finalize(self, value: Any) -> Any:
        self.weigh(value)
        return value

    def weigh(self, value: Any) -> None:
        """Charges the text that a value makes when it is spelled out."""
        if isinstance(value, str | bytes):
            self.charge(len(value))
            return
        self.charge(1)
        if isinstance(value, Namespace):
            value = object.__getattribute__(value, "_Namespace__attrs")
        if isinstance(value, Mapping):
            for key, item in value.items():
                self.weigh(key)
                self.weigh(item)
        elif isinstance(value, list | tuple | set | frozenset | KeysView | ItemsView | ValuesView):
            for item in value:
                self.weigh(item)

    def _check_method(
        self, method: types.BuiltinMethodType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Charges what a method of a built-in value will make, before it does."""
        owner, name = method.__self__, method.__name__
        values = (*args, *kwargs.values())
        numbers = [abs(value) for value in values if isinstance(value, int)]
        if not isinstance(owner, str | bytes):
            if max(numbers, default=0) > MAX_TEXT:
                raise BudgetExceeded(f"it calls {name} with an absurdly large number")
            return args
        if name == "translate":
            raise BudgetExceeded("translate is not available to templates")
        if name in _PADDING:
            self.charge(len(owner) + max(numbers, default=0))
        elif name == "expandtabs":
            self.charge(len(owner) * max([8, *numbers]))
        elif name == "replace" and len(values) >= 2:
            old, new = values[:2]
            count = owner.count(old) if old else len(owner) + 1
            self.charge(len(owner) + count * len(new))
        elif name == "join" and args:
            parts = list(args[0])
            self.charge(sum(len(part) + len(owner) for part in parts if isinstance(part, Sized)))
            return (parts, *args[1:])
        return args

    def guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)  # keeps Jinja's marks for functions that want the context
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.charge(1)
            values = (*args, *kwargs.values())
            if name not in _LAZY_FILTERS:
                for value in values:
                    self.weigh(value)
            if name == "format" and _WIDE_PERCENT.search(str(args[0])):
                raise BudgetExceeded("it formats with an absurdly large width")
            if name == "replace":
                text, old, new, *_ = map(str, values[1:])  # the first is the evaluation context
                if kwargs:
                    old, new = str(kwargs.get("old", old)), str(kwargs.get("new", new))
                self.charge(len(text) + (text.count(old) if old else len(text) + 1) * len(new))
            if name in _NUMBERED_FILTERS:
                numbers = [value for value in values if isinstance(value, int)]
                if max(numbers, default=0) > 10_000:
                    raise BudgetExceeded(f"it calls {name} with an absurdly large number")
            result = function(*args, **kwargs)
            if isinstance(result, str | list | tuple):
                self.charge(len(result))
            return result

        return guarded


@pass_environment
def _join(environment: Sandbox, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    """The `join` filter, counting before it builds."""
    items = list(value)
    if attribute is not None:
        items = list(map(make_attrgetter(environment, attribute), items))
    environment.weigh(items)
    environment.charge(len(items) * len(str(d)))
    return str(d).join(map(str, items))


class _Instrument(NodeTransformer):
    """Makes the bodies of a template report to the budget, and `~` go through `concatenate`."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.Concat):
            return _call("concatenate", node.nodes, node.lineno)
        if isinstance(
            node, nodes.For | nodes.Macro | nodes.CallBlock | nodes.FilterBlock | nodes.AssignBlock
        ):
            cost = 1 + sum(len(data.data) for data in node.find_all(nodes.TemplateData))
            charge = nodes.ExprStmt(_call("charge", [nodes.Const(cost)], node.lineno))
            node.body.insert(0, charge.set_lineno(node.lineno))
        return node


def _call(method: str, args: list[nodes.Expr], line: int) -> nodes.Call:
    """A call of a method of the environment, by a node that a template cannot shadow."""
    call = nodes.Call(nodes.EnvironmentAttribute(method), args, [], None, None)
    call.set_lineno(line)
    return call
