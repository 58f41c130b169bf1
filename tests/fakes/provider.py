"""Providers on a real socket: they stream what a script says, break where it says, and refuse what real ones refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from perdure.config import Provider
from perdure.config.settings import Secret
from perdure.models import Model
from perdure.models.opening import open_model
from tests.fakes import strict

KEY = "sk-fake-key"
SPEAKING = {"openai": "/v1", "openai-responses": "/v1", "anthropic": ""}
"""The providers whose language a fake speaks, and where each is found on it."""


@dataclass(frozen=True)
class Speech:
    """What is answered, and how that ends."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    """Id, name, arguments."""
    pause: float = 0.0
    """Seconds between two words."""
    end: str = "finish"
    """`finish`; `drop` (the connection, without a word), `no finish` (a clean end), `error` (an event), `stall`."""
    after: int = 1 << 30
    """How many events are sent before that end."""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    error: str = ""
    """The provider's code of an error."""


@dataclass
class FakeProvider:
    """Listens until closed. `script` says what is answered to each request's body."""

    script: Callable[[dict[str, Any]], Speech]
    requests: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Why requests were not taken. A test that is done expects none."""
    signed: set[str] = field(default_factory=set)
    address: str = ""
    open: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            self.open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        path = head.split(" ", 2)[1]
        body = json.loads(
            (await reader.readexactly(int(headers["content-length"]))).decode("utf-8", "strict")
        )
        self.requests.append(body)
        speech = self.script(body)
        if why := next(self._objections(path, headers, body), ""):
            self.refused.append(why)
            speech = Speech(status=400, error="invalid_request_error", text=why)
        if speech.status != 200:
            await self._refuse(writer, speech)
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for number, (kind, event) in enumerate(self._events(path, speech)):
            if number >= speech.after or (kind == "finish" and speech.end != "finish"):
                if speech.end == "stall":
                    await reader.read()  # until whoever asked has gone
                if speech.end == "error":
                    _send(writer, *_error_event(path, speech.error or "overloaded_error"))
                if speech.end == "drop":
                    writer.transport.abort()
                    return
                break
            _send(writer, event.get("type", ""), event)
            await writer.drain()
            if kind == "word" and speech.pause:
                await asyncio.sleep(speech.pause)
        else:
            if "chat" in path:
                _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _objections(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Iterator[str]:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("bearer ")
        if key != KEY:
            yield f"the key is {key!r}"
        if not body.get("stream"):
            yield "it is not streamed"
        if path.endswith("/chat/completions"):
            yield from strict.chat(body)
        elif path.endswith("/responses"):
            yield from strict.responses(body)
        elif "/messages" in path:
            yield from strict.anthropic(body, self.signed)
        else:
            yield f"there is no {path}"

    async def _refuse(self, writer: asyncio.StreamWriter, speech: Speech) -> None:
        error = {"type": speech.error or "api_error", "code": speech.error, "message": speech.text or "no"}
        content = json.dumps({"type": "error", "error": error}).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in speech.headers)
        writer.write(
            f"HTTP/1.1 {speech.status} No\r\ncontent-type: application/json\r\nconnection: close\r\n{more}"
            f"content-length: {len(content)}\r\n\r\n".encode()
            + content
        )
        await writer.drain()

    def _events(self, path: str, speech: Speech) -> Iterable[tuple[str, dict[str, Any]]]:
        if path.endswith("/chat/completions"):
            return _chat_events(speech)
        if path.endswith("/responses"):
            return _responses_events(speech)
        signature = f"signed-{len(self.signed)}"
        self.signed.add(signature)
        return _anthropic_events(speech, signature)


def model_at(provider: str, fake: FakeProvider) -> Model:
    said = {provider: Provider(Secret(KEY), fake.address + SPEAKING[provider])}
    return open_model(f"{provider}:fake-model", said, {})


@asynccontextmanager
async def listening(script: Callable[[dict[str, Any]], Speech]) -> AsyncIterator[FakeProvider]:
    fake = FakeProvider(script)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()
        for task in fake.open:
            task.cancel()
        await asyncio.gather(*fake.open, return_exceptions=True)


def _send(writer: asyncio.StreamWriter, kind: str, event: dict[str, Any]) -> None:
    name = f"event: {kind}\n" if kind else ""
    _chunk(writer, f"{name}data: {json.dumps(event)}\n\n".encode())


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _error_event(path: str, code: str) -> tuple[str, dict[str, Any]]:
    error = {"type": code, "code": code, "message": "in the middle"}
    if "chat" in path:
        return "", {"error": error}
    return "error", {
        "type": "error",
        "error": error,
        "code": code,
        "message": "in the middle",
        "param": None,
        "sequence_number": 99,
    }


def _words(text: str) -> list[str]:
    return [word + " " for word in text.split(" ")[:-1]] + text.split(" ")[-1:] if text else []


def _chat_events(speech: Speech) -> Iterator[tuple[str, dict[str, Any]]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "chat-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "fake",
            "choices": [choice],
        }

    yield "start", chunk({"role": "assistant", "content": ""})
    for word in _words(speech.thinking):
        yield "word", chunk({"reasoning_content": word})
    for word in _words(speech.text):
        yield "word", chunk({"content": word})
    for at, (id, name, arguments) in enumerate(speech.calls):
        yield (
            "call",
            chunk(
                {
                    "tool_calls": [
                        {
                            "index": at,
                            "id": id,
                            "type": "function",
                            "function": {"name": name, "arguments": ""},
                        }
                    ]
                }
            ),
        )
        for half in (arguments[:5], arguments[5:]):
            yield "word", chunk({"tool_calls": [{"index": at, "function": {"arguments": half}}]})
    yield "finish", chunk({}, "tool_calls" if speech.calls else "stop")
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    yield "usage", {**chunk({}), "choices": [], "usage": usage}


def _responses_events(speech: Speech) -> Iterator[tuple[str, dict[str, Any]]]:
    count = iter(range(1000))

    def event(kind: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "sequence_number": next(count), **more}

    def response(status: str, output: list[Any]) -> dict[str, Any]:
        usage = {
            "input_tokens": 11, "output_tokens": 7, "total_tokens": 18,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        }  # fmt: skip
        return {
            "id": "resp-1", "object": "response", "created_at": 1, "model": "fake", "status": status, "output": output,
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage if status == "completed" else None,
        }  # fmt: skip

    yield "start", event("response.created", response=response("in_progress", []))
    output: list[Any] = []
    if speech.text:
        item = {"id": "msg-1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        yield "start", event("response.output_item.added", output_index=0, item=item)
        part = {"type": "output_text", "text": "", "annotations": []}
        yield (
            "start",
            event("response.content_part.added", item_id="msg-1", output_index=0, content_index=0, part=part),
        )
        for word in _words(speech.text):
            yield (
                "word",
                event(
                    "response.output_text.delta",
                    item_id="msg-1",
                    output_index=0,
                    content_index=0,
                    delta=word,
                    logprobs=[],
                ),
            )
        whole = {"type": "output_text", "text": speech.text, "annotations": []}
        done = {**item, "status": "completed", "content": [whole]}
        yield "end", event("response.output_item.done", output_index=0, item=done)
        output.append(done)
    for id, name, arguments in speech.calls:
        at = len(output)
        item = {
            "id": f"fc-{at}",
            "type": "function_call",
            "call_id": id,
            "name": name,
            "arguments": "",
            "status": "in_progress",
        }
        yield "call", event("response.output_item.added", output_index=at, item=item)
        yield (
            "word",
            event(
                "response.function_call_arguments.delta", item_id=f"fc-{at}", output_index=at, delta=arguments
            ),
        )
        done = {**item, "arguments": arguments, "status": "completed"}
        yield "end", event("response.output_item.done", output_index=at, item=done)
        output.append(done)
    yield "finish", event("response.completed", response=response("completed", output))


def _anthropic_events(speech: Speech, signature: str) -> Iterator[tuple[str, dict[str, Any]]]:
    usage = {"input_tokens": 11, "output_tokens": 1}
    message = {"id": "msg-1", "type": "message", "role": "assistant", "model": "fake", "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    yield "start", {"type": "message_start", "message": message}
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if speech.thinking:
        deltas = [{"type": "thinking_delta", "thinking": word} for word in _words(speech.thinking)]
        blocks.append(
            (
                {"type": "thinking", "thinking": "", "signature": ""},
                [*deltas, {"type": "signature_delta", "signature": signature}],
            )
        )
    if speech.text:
        blocks.append(
            (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": word} for word in _words(speech.text)],
            )
        )
    for id, name, arguments in speech.calls:
        deltas = [
            {"type": "input_json_delta", "partial_json": half} for half in (arguments[:5], arguments[5:])
        ]
        blocks.append(({"type": "tool_use", "id": id, "name": name, "input": {}}, deltas))
    for at, (block, deltas) in enumerate(blocks):
        yield "start", {"type": "content_block_start", "index": at, "content_block": block}
        for delta in deltas:
            yield "word", {"type": "content_block_delta", "index": at, "delta": delta}
        yield "end", {"type": "content_block_stop", "index": at}
    reason = "tool_use" if speech.calls else "end_turn"
    yield (
        "finish",
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
    )
    yield "end", {"type": "message_stop"}
