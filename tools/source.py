"""Reads what the source says of itself: classes, fields, functions, and the sentences beside them.

Nothing is imported: what stands in a page is what stands in the file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "perdure"
WIDTH = 110


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: str
    default: str | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    signature: str
    doc: str
    section: str
    keeps: tuple[str, ...]
    "What it sets on `self`."


@dataclass(slots=True)
class Class:
    name: str
    bases: tuple[str, ...]
    doc: str
    section: str
    line: int
    fields: list[Field] = field(default_factory=list)
    plain: dict[str, str] = field(default_factory=dict)
    'What is set in its body without a type: `by = "anyone"`.'
    functions: list[Function] = field(default_factory=list)


@cache
def _parsed(file: Path) -> tuple[str, ast.Module]:
    text = file.read_text(encoding="utf-8")
    return text, ast.parse(text)


def module_doc(file: Path) -> str:
    return ast.get_docstring(_parsed(file)[1]) or ""


def classes(file: Path) -> list[Class]:
    text, tree = _parsed(file)
    return [_class(text, node) for node in tree.body if isinstance(node, ast.ClassDef)]


def class_named(file: Path, name: str) -> Class:
    return next(each for each in classes(file) if each.name == name)


def functions(file: Path) -> list[Function]:
    text, tree = _parsed(file)
    return list(_functions(text, tree.body))


def function_named(file: Path, name: str) -> Function:
    return next(each for each in functions(file) if each.name == name)


def _class(text: str, node: ast.ClassDef) -> Class:
    found = Class(
        node.name, tuple(map(ast.unparse, node.bases)), ast.get_docstring(node) or "",
        _section(text, node.lineno, r"# --- (.*) ---"), node.lineno,
    )  # fmt: skip
    for line, below in zip(node.body, [*node.body[1:], None], strict=True):
        match line:
            case ast.AnnAssign(target=ast.Name(id=name)) if "ClassVar" not in ast.unparse(line.annotation):
                default = None if line.value is None else ast.unparse(line.value)
                found.fields.append(Field(name, ast.unparse(line.annotation), default, _sentence(below)))
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.plain[name] = ast.unparse(line.value)
    found.functions += _functions(text, node.body)
    return found


def _sentence(below: ast.stmt | None) -> str:
    match below:
        case ast.Expr(value=ast.Constant(value=str(sentence))):
            return " ".join(sentence.split())
    return ""


def _functions(text: str, body: list[ast.stmt]) -> Iterator[Function]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_") and node.name != "__init__":
            continue
        section = _section(text, node.lineno, r"    # ([A-Z][^:.]*)")
        yield Function(
            node.name,
            _signature(node, _constants(text)),
            ast.get_docstring(node) or "",
            section,
            tuple(_kept(node)),
        )


def _kept(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        match inner:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)]):
                yield name


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, constants: Mapping[str, str]) -> str:
    """As a caller reads it: with `await` where it is awaited, without `self`, constants by their value."""
    returns = ast.unparse(node.returns) if node.returns else ""
    if "property" in map(ast.unparse, node.decorator_list):
        return f"{node.name}: {returns}"
    is_stream = any(isinstance(inner, ast.Yield) for inner in ast.walk(node))
    waits = "await " if isinstance(node, ast.AsyncFunctionDef) and not is_stream else ""
    said = list(_arguments(node.args, constants))
    ends = f") -> {returns}" if returns else ")"
    line = f"{waits}{node.name}({', '.join(said)}{ends}"
    return line if len(line) <= WIDTH else f"{waits}{node.name}(\n    " + ",\n    ".join(said) + f",\n{ends}"


def _arguments(given: ast.arguments, constants: Mapping[str, str]) -> Iterator[str]:
    named = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(named) - len(given.defaults)) + list(given.defaults)
    for argument, default in zip(named, defaults, strict=True):
        if argument.arg != "self":
            yield _argument(argument, default, constants)
    if given.vararg:
        yield "*" + _argument(given.vararg, None, constants)
    elif given.kwonlyargs:
        yield "*"
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _argument(argument, default, constants)


def _argument(argument: ast.arg, default: ast.expr | None, constants: Mapping[str, str]) -> str:
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    if default is None:
        return argument.arg + kind
    value = ast.unparse(default)
    return f"{argument.arg}{kind} = {constants.get(value, value)}"


@cache
def _constants(text: str) -> Mapping[str, str]:
    return {
        name: ast.unparse(value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        for name, value in [(ast.unparse(node.targets[0]), node.value)]
        if name.isupper()
    }


def _section(text: str, line: int, pattern: str) -> str:
    """The last heading among the comments above a line."""
    above = text.splitlines()[: line - 1]
    return next((found[1] for each in reversed(above) if (found := re.fullmatch(pattern, each))), "")
