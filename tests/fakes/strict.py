"""What real providers refuse: each function says why a request body would not be taken, or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def chat(body: dict[str, Any]) -> Iterator[str]:
    """OpenAI's Chat Completions."""
    messages = body.get("messages") or []
    if not messages:
        yield "messages is empty"
    owed: list[str] = []
    for at, message in enumerate(messages):
        role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls") or []
        if role not in ("system", "developer", "user", "assistant", "tool"):
            yield f"messages[{at}].role is {role!r}"
        if role in ("system", "developer") and at and messages[at - 1]["role"] not in ("system", "developer"):
            yield f"messages[{at}] is an instruction in the middle"
        if role == "tool":
            if message.get("tool_call_id") not in owed:
                yield f"messages[{at}] answers no tool call"
            else:
                owed.remove(message["tool_call_id"])
        elif owed:
            yield f"messages[{at}] comes before the results of {owed}"
        if not _has_text(content) and not calls:
            yield f"messages[{at}] ({role}) is empty"
        for call in calls:
            if not NAME.fullmatch(call["function"]["name"]) or not isinstance(
                call["function"]["arguments"], str
            ):
                yield f"messages[{at}] has a malformed call"
        owed += [call["id"] for call in calls]
        if len(set(owed)) < len(owed) or not all(owed):
            yield f"messages[{at}] has calls of one name: {owed}"
    if owed:
        yield f"the results of {owed} are missing"
    if messages and messages[-1]["role"] not in ("user", "tool"):
        yield "the last message is the model's own"
    yield from _tools([tool["function"] for tool in body.get("tools", [])])


def _has_text(content: Any) -> bool:
    if isinstance(content, list):
        return bool(content) and all(part.get("type") != "text" or part.get("text") for part in content)
    return isinstance(content, str) and bool(content)


def responses(body: dict[str, Any]) -> Iterator[str]:
    """OpenAI's Responses."""
    items = body.get("input") or []
    if not items:
        yield "input is empty"
    owed: list[str] = []
    for at, item in enumerate(items):
        match item.get("type", "message"):
            case "function_call":
                owed.append(item["call_id"])
                json.loads(item["arguments"])
            case "function_call_output":
                if item["call_id"] not in owed:
                    yield f"input[{at}] answers no function call"
                else:
                    owed.remove(item["call_id"])
            case "message":
                if owed:
                    yield f"input[{at}] comes before the outputs of {owed}"
                if not item.get("content"):
                    yield f"input[{at}] is empty"
            case other:
                yield f"input[{at}] is of type {other}"
    if owed:
        yield f"the outputs of {owed} are missing"
    yield from _tools(body.get("tools", []))


def anthropic(body: dict[str, Any], signed: set[str]) -> Iterator[str]:
    """Anthropic's Messages. `signed` are the signatures that this server gave out."""
    messages = body.get("messages") or []
    if not body.get("max_tokens"):
        yield "max_tokens is missing"
    if not messages or messages[0]["role"] != "user":
        yield "the first message is not the user's"
    owed: list[str] = []
    before = ""
    for at, message in enumerate(messages):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == before:
            yield f"messages[{at}]: roles do not alternate"
        before = message["role"]
        if not blocks:
            yield f"messages[{at}] is empty"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(owed):
            yield f"messages[{at}]: results {results} for calls {owed}"
        if results and any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            yield f"messages[{at}]: results do not come first"
        owed = []
        for block in blocks:
            match block["type"]:
                case "text" if not block["text"].strip():
                    yield f"messages[{at}]: a text block without text"
                case "tool_use":
                    owed.append(block["id"])
                    if not isinstance(block["input"], dict) or not NAME.fullmatch(block["name"]):
                        yield f"messages[{at}]: a malformed tool_use"
                case "thinking" if block.get("signature") not in signed:
                    yield f"messages[{at}]: thinking with a signature of somebody else's"
                case _:
                    pass
    if owed:
        yield f"the results of {owed} are missing"
    if messages and messages[-1]["role"] != "user":
        yield "the last message is the model's own"
    yield from _tools([{**tool, "parameters": tool.get("input_schema")} for tool in body.get("tools", [])])


def _tools(tools: list[dict[str, Any]]) -> Iterator[str]:
    for tool in tools:
        if not NAME.fullmatch(tool["name"]) or (tool.get("parameters") or {}).get("type") != "object":
            yield f"tool {tool['name']!r} is malformed"
