"""Imports point one way: server -> njax -> pallas_kernels -> jax.

`njax.cli` alone may import the server, and only inside functions, so that commands that do not
serve do not load it. Read from the syntax trees: nothing is imported here.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "pallas_kernels": {"njax", "server", "flax", "orbax", "litestar", "tests"},
    "njax": {"server", "litestar", "uvicorn", "tests"},
    "server": {"pallas_kernels", "tests"},
}


def imports(tree: ast.AST, *, lazy: bool = False) -> Iterator[tuple[str, int, bool]]:
    """(top-level package, line, inside a function) of every absolute import."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((name.name.split(".")[0], node.lineno, lazy) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0], node.lineno, lazy
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(node, lazy=lazy or function)


@pytest.mark.parametrize("package", FORBIDDEN)
def test_direction(package: str) -> None:
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")):
        for name, line, lazy in imports(ast.parse(path.read_text(encoding="utf-8"))):
            cli = path.is_relative_to(ROOT / "njax" / "cli")
            if name in FORBIDDEN[package] and not (cli and lazy and name in ("server", "uvicorn")):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_pallas_kernels_needs_jax_alone() -> None:
    """Beyond the standard library: jax and what it brings along."""
    ours = {"pallas_kernels", "jax", "jaxlib", "numpy", "ml_dtypes"}
    allowed = ours | set(sys.stdlib_module_names)
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted((ROOT / "pallas_kernels").rglob("*.py"))
        for name, line, _ in imports(ast.parse(path.read_text(encoding="utf-8")))
        if name not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_the_reader_sees_what_it_should() -> None:
    source = "import a.b\nfrom c import d\nfrom . import e\ndef f():\n    if 1:\n        import g\n"
    assert list(imports(ast.parse(source))) == [("a", 1, False), ("c", 2, False), ("g", 6, True)]
