"""The reference pages that come from the source alone: facts, errors, and what there is to import."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from tools.source import (
    SOURCE,
    Class,
    Function,
    class_named,
    classes,
    function_named,
    functions,
    module_doc,
)

JOURNAL = SOURCE / "journal"
NOT_FOR_CALLERS = {"submit", "__init__", "Scene"}
"""Public to other rooms of ours, and no part of what is promised."""


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; the first row is its head."""
    head, *rest = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def events_page() -> str:
    found = classes(SOURCE / "events.py")
    values = [each for each in found if "Value" in each.bases]
    facts = [each for each in found if "Fact" in each.bases]
    grouped = groupby(facts, key=lambda fact: fact.section)
    read = [each for each in found if each.name in ("Unknown", "Unreadable", "Erased")]
    groups = "\n".join(f"## {name.capitalize()}\n\n{_all(map(_fact, some))}" for name, some in grouped)
    return f"""# Facts

Everything that can happen in a session, in the order of `src/perdure/events.py`, from which this page is made. An event
is a fact in its place: `Event(seq, ts, epoch, key, fact)`. How each of them looks when it is stored, and which laws
they keep, is in [the journal's format](../explanation/journal-format.md).

*Owner* means the process that runs the session: its facts carry its epoch, and are refused once another has taken
over. *Anyone* may append the others at any time. `updated_at` and `last_message_at` are the two times of a session in
the list; what does not move them does not count as activity. `Seq` is a position in the same session. Times are
microseconds since 1970, UTC. A field with a default need not be given, and is not stored while it has it.

{groups}
## Parts of facts

{_all(map(_value, values))}
## What is read and never appended

{_all(map(_value, read))}"""


def _all(entries: Iterable[str]) -> str:
    return "".join(f"{entry}\n" for entry in entries)


def _fact(fact: Class) -> str:
    by = {'"anyone"': "Anyone may", '"owner"': "Only the owner may"}[
        fact.plain.get("by", '"owner"').replace("'", '"')
    ]
    moves = {"''": "no time", "'turn'": "`updated_at`", "'message'": "`updated_at` and `last_message_at`"}
    traits = f"*{by} append it. It moves {moves[fact.plain.get('moves', repr(''))]}.*"
    if fact.plain.get("piece") == "True":
        traits += " *It is a piece: dropped, perhaps, once the fact that ends its call is stored.*"
    return _entry(fact, traits)


def _value(value: Class) -> str:
    return _entry(value, "")


def _entry(of: Class, traits: str) -> str:
    if not of.doc:
        raise SystemExit(f"events.py:{of.line}: {of.name} has no sentence")
    said = f"### {of.name}\n\n{of.doc}\n" + (f"\n{traits}\n" if traits else "")
    return said + (f"\n{_fields(of)}\n" if of.fields else "")


def _fields(of: Class) -> str:
    """A table of them, without columns in which nothing stands."""
    rows = [("Field", "Type", "Default", "Meaning")]
    rows += [
        (f"`{f.name}`", f"`{f.type}`", f"`{f.default}`" if f.default else "", f.sentence) for f in of.fields
    ]
    filled = [any(row[at] for row in rows[1:]) for at in range(4)]
    return table(
        *(tuple(cell for cell, is_filled in zip(row, filled, strict=True) if is_filled) for row in rows)
    )


def errors_page() -> str:
    found = classes(SOURCE / "errors.py")
    return f"""# Errors

Everything that Perdure raises on purpose, from `src/perdure/errors.py`. All of them are in `perdure.errors`; the message
is a sentence for people, the fields are for programs.

```text
{_tree(found)}
```

{_all(_error(each, found) for each in found)}"""


def _tree(found: list[Class], root: str = "Exception", depth: int = 0) -> str:
    below = (each for each in found if each.bases == (root,))
    return "\n".join(
        "\n".join(filter(None, ["  " * depth + each.name, _tree(found, each.name, depth + 1)]))
        for each in below
    )


def _error(error: Class, found: list[Class]) -> str:
    fields = ", ".join(f"`{name}`" for name in _error_fields(error, found))
    return f"## {error.name}\n\n{error.doc}\n" + (f"\nFields: {fields}.\n" if fields else "")


def _error_fields(error: Class, found: list[Class]) -> list[str]:
    """What its constructor keeps, its parents' first."""
    names = [name for base in found if base.name in error.bases for name in _error_fields(base, found)]
    own = [name for each in error.functions if each.name == "__init__" for name in each.keeps]
    return names + [name for name in own if name not in names]


def python_page() -> str:
    journal = class_named(JOURNAL / "__init__.py", "Journal")
    return f"""# Python

What there is to import, from signatures and docstrings. `import perdure` imports nothing else until one of its names is
used. What is in `perdure` itself keeps its promises from version to version; the rooms below it may be imported too
and promise less. `await` stands before what is awaited; what returns an `AsyncIterator` is read with `async for`. There
are no synchronous twins.

```python
{_surface()}
```

The facts are in `perdure.events` ([their page](events.md)), the errors in `perdure.errors` ([theirs](errors.md)).

## Opening a store

{_function(function_named(JOURNAL / "__init__.py", "open"))}
{_function(function_named(JOURNAL / "__init__.py", "blob_of"))}
## Journal

{journal.doc}

{_methods(journal)}
## Owned

{_described(class_named(JOURNAL / "owning.py", "Owned"))}
## What goes in and comes out

{_all(_shape(class_named(JOURNAL / "store.py", name)) for name in ("Wanted", "Listed", "Page", "Appended", "Kept"))}
{_shape(class_named(SOURCE / "views" / "head.py", "Head"))}
## Looking after a store

`perdure.journal.care` and `perdure.journal.salvage` are what the commands of the same names do.

{_all(map(_function, _public(JOURNAL / "care.py", ("doctor", "backup", "prune"))))}
{_shape(class_named(JOURNAL / "care.py", "Finding"))}
{_all(map(_function, _public(JOURNAL / "salvage.py", ("salvage",))))}
{_shape(class_named(JOURNAL / "salvage.py", "Saved"))}
## The laws, and the stored form

{_function(function_named(SOURCE / "grammar.py", "offences"))}
{_function(function_named(SOURCE / "codec.py", "encode"))}
{_function(function_named(SOURCE / "codec.py", "decode"))}
{_testing()}"""


def _surface() -> str:
    from perdure import _SURFACE

    return "\n".join(f"from perdure import {name}  # {room}.{name}" for name, room in _SURFACE.items())


def _public(file: Path, names: Iterable[str]) -> list[Function]:
    return [function_named(file, name) for name in names]


def _methods(of: Class) -> str:
    said = ""
    for section, some in groupby(of.functions, key=lambda each: each.section):
        shown = [each for each in some if _is_shown(each)]
        if shown:
            heading = "Closing" if section == "Plumbing" else section
            said += f"### {heading}\n\n{_all(map(_function, shown))}\n"
    return said.rstrip() + "\n"


def _is_shown(method: Function) -> bool:
    if method.section == "Plumbing":
        return method.name == "close"
    return method.name not in NOT_FOR_CALLERS


def _function(function: Function) -> str:
    return f"```text\n{function.signature}\n```\n" + (f"\n{function.doc}\n" if function.doc else "")


def _described(of: Class) -> str:
    shown = [each for each in of.functions if _is_shown(each)]
    return f"{of.doc}\n\n{_all(map(_function, shown))}"


def _shape(of: Class) -> str:
    rest = [each for each in of.functions if each.doc and each.name not in ("after", "__init__")]
    return f"### {of.name}\n\n{of.doc}\n\n{_fields(of)}\n" + "".join(f"\n{_function(each)}" for each in rest)


def _testing() -> str:
    folder = SOURCE / "testing"
    files = sorted(file for file in folder.glob("*.py") if file.name != "__init__.py")
    said = f"## perdure.testing\n\n{module_doc(folder / '__init__.py')}\n"
    for file in files:
        said += f"\n### perdure.testing.{file.stem}\n\n{module_doc(file)}\n"
        for each in classes(file):
            if not each.name.startswith("_") and each.doc and each.name not in NOT_FOR_CALLERS:
                said += f"\n**{each.name}.** {each.doc}\n"
                said += "".join(
                    f"\n{_function(f)}" for f in each.functions if f.doc and not f.name.startswith("test_")
                )
        for function in functions(file):
            if function.doc:
                said += f"\n{_function(function)}"
    return said + _contract(folder / "contract")


def _contract(folder: Path) -> str:
    said = f"\n### perdure.testing.contract\n\n{module_doc(folder / '__init__.py')}\n"
    said += "\nWhat it wants of a subclass:\n\n"
    said += "\n".join(
        _function(each) for each in class_named(folder / "place.py", "Place").functions if each.doc
    )
    for part in class_named(folder / "__init__.py", "JournalContract").bases:
        file = folder / f"{part.lower()}.py"
        tests = [each.name for each in class_named(file, part).functions if each.name.startswith("test_")]
        said += f"\n**{part}.** {module_doc(file)}\n\n"
        said += "".join(f"- {_sentence(name)}\n" for name in tests)
    return said


def _sentence(test: str) -> str:
    return test.removeprefix("test_").replace("_s_", "'s ").replace("_", " ")
