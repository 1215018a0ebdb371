"""What the declared tools say about names and types.

A parameter's JSON Schema is reduced to the JSON types that it allows: through `$ref` (within the
declaration), `anyOf`, `oneOf`, `allOf`, lists of types, `nullable`, `enum` and `const`. A schema
that says nothing, or names an unknown type, allows any text.
"""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

KNOWN_TYPES = frozenset({"string", "boolean", "integer", "number", "array", "object", "null"})
_ANYTHING = frozenset({"string"})  # no type declared: the text as it is
_MAX_DEPTH = 32
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_KEY = re.compile(r"[\w$@.-]{1,128}")


@dataclasses.dataclass(frozen=True)
class ParameterType:
    """What a value may be.

    Attributes:
      types: JSON types; with "string" among them a value is text, whatever it looks like (except
        `null` where null is allowed, and members of `enum`).
      enum: the only values, if they are listed.
    """

    types: frozenset[str] = _ANYTHING
    enum: tuple[Any, ...] | None = None

    @property
    def streams(self) -> bool:
        """Whether text can be passed on before its end is known (but for a beginning of null)."""
        return "string" in self.types and self.enum is None

    @property
    def nullable(self) -> bool:
        return "null" in self.types


TEXT = ParameterType()


class Tool:
    """One declared tool, or (without parameters) one that nobody declared."""

    def __init__(self, name: str, parameters: Any = None, *, declared: bool = True):
        self.name = name
        self.declared = declared
        self._root: Mapping[str, Any] = parameters if isinstance(parameters, Mapping) else {}
        self.properties: dict[str, Any] = {}
        self._others: Any = None
        self._gather(self._root, 0)
        self._types: dict[str, ParameterType] = {}

    @property
    def closed(self) -> bool:
        """Whether parameters that are not declared are forbidden."""
        return self._others is False

    @property
    def open(self) -> bool:
        """Whether any parameter is as good as another: none declared, or others welcome."""
        return not self.properties or bool(self._others) or isinstance(self._others, Mapping)

    def legal_key(self, key: str) -> bool:
        """Whether a call may name this parameter at all."""
        return key in self.properties or _KEY.fullmatch(key) is not None

    def type_of(self, key: str) -> ParameterType:
        if key not in self._types:
            others = self._others if isinstance(self._others, Mapping) else {}
            self._types[key] = parameter_type(self.properties.get(key, others), self._root)
        return self._types[key]

    def _gather(self, schema: Any, depth: int) -> None:
        """Properties of the root, also those behind references and combinations."""
        schema = resolve(schema, self._root)
        if depth > _MAX_DEPTH or not isinstance(schema, Mapping):
            return
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            for key, value in properties.items():
                self.properties.setdefault(key, value)
        if self._others is None:
            self._others = schema.get("additionalProperties")
        for word in ("allOf", "anyOf", "oneOf"):
            for part in _parts(schema, word):
                self._gather(part, depth + 1)


class Tools:
    """The declared tools by name.

    Args:
      declarations: as the protocols have them: `{"type": "function", "function": {...}}`, or
        name with `parameters` or `input_schema`. Others (built-in tools) are ignored.
    """

    def __init__(self, declarations: Sequence[Mapping[str, Any]] | None):
        self._tools: dict[str, Tool] = {}
        for declaration in declarations or ():
            function = declaration.get("function", declaration)
            name = function.get("name") if isinstance(function, Mapping) else None
            if isinstance(name, str) and name:
                parameters = function.get("parameters", function.get("input_schema"))
                self._tools.setdefault(name, Tool(name, parameters))

    def __bool__(self) -> bool:
        return bool(self._tools)

    def declares(self, name: str) -> bool:
        return name in self._tools

    def find(self, name: str) -> Tool | None:
        """The tool; for an undeclared but well-formed name one without parameters; else None."""
        tool = self._tools.get(name)
        if tool is None and _NAME.fullmatch(name):
            return Tool(name, declared=False)
        return tool


def parameter_type(schema: Any, root: Mapping[str, Any]) -> ParameterType:
    """The type of a value with this schema; references are looked up in `root`."""
    types, enum = _types(schema, root, 0)
    if enum is not None and types is None:
        types = frozenset(_type_name(value) for value in enum)
    if not types or not types <= KNOWN_TYPES:
        return ParameterType(_ANYTHING, enum)
    return ParameterType(types, enum)


def resolve(schema: Any, root: Mapping[str, Any]) -> Any:
    """Follows `$ref` (`#`, `#/...`); what else the schema says beside it wins."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            return schema
        target = _pointer(schema["$ref"], root)
        if not isinstance(target, Mapping):
            return {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return {}


def _pointer(reference: str, root: Mapping[str, Any]) -> Any:
    if not reference.startswith("#"):
        return None
    node: Any = root
    for step in urllib.parse.unquote(reference[1:]).split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(step)
        elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
        else:
            return None
    return node


_Found = tuple[frozenset[str] | None, tuple[Any, ...] | None]


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> _Found:
    """(types, enum), each None if the schema does not say. Unknown type names are kept."""
    schema = resolve(schema, root)
    if depth > _MAX_DEPTH or not isinstance(schema, Mapping):
        return None, None
    types: frozenset[str] | None = None
    enum: tuple[Any, ...] | None = None
    declared = schema.get("type")
    if isinstance(declared, str):
        types = frozenset({declared})
    elif isinstance(declared, list) and declared:
        types = frozenset(str(name) for name in declared)
    if isinstance(schema.get("enum"), list):
        enum = tuple(schema["enum"])
    elif "const" in schema:
        enum = (schema["const"],)
    for word in ("anyOf", "oneOf"):
        if parts := _parts(schema, word):
            types, enum = _both((types, enum), _either([_types(p, root, depth + 1) for p in parts]))
    for part in _parts(schema, "allOf"):
        types, enum = _both((types, enum), _types(part, root, depth + 1))
    if types is None and enum is None:
        types = _implied(schema)
    if schema.get("nullable") is True:
        types = None if types is None else types | {"null"}
        enum = None if enum is None else (*enum, None)
    return types, enum


def _either(found: Sequence[_Found]) -> _Found:
    """Of alternatives: silent about one, silent about all."""
    types: frozenset[str] | None = frozenset()
    enum: tuple[Any, ...] | None = ()
    for part_types, part_enum in found:
        if part_types is None and part_enum is not None:
            part_types = frozenset(_type_name(value) for value in part_enum)
        if part_enum is None and part_types == {"null"}:
            part_enum = (None,)
        types = None if types is None or part_types is None else types | part_types
        enum = None if enum is None or part_enum is None else (*enum, *part_enum)
    return types, enum


def _both(one: _Found, other: _Found) -> _Found:
    (types, enum), (more_types, more_enum) = one, other
    if types is None or more_types is None:
        types = more_types if types is None else types
    else:
        types = types & more_types or types
    return types, more_enum if enum is None else enum


def _implied(schema: Mapping[str, Any]) -> frozenset[str] | None:
    if "properties" in schema:
        return frozenset({"object"})
    if "items" in schema or "prefixItems" in schema:
        return frozenset({"array"})
    return None


def _parts(schema: Mapping[str, Any], word: str) -> Sequence[Any]:
    parts = schema.get(word)
    return parts if isinstance(parts, list) else ()


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")
