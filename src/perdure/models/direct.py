"""Providers' models, reached through `pydantic_ai.direct`.

The library takes seconds to import, so it is imported when the first call is made, in a thread. Its types end here: what
comes out is ours, and so is every error.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from perdure import events as e
from perdure.models import ModelFailed, Reason, Reply, Request, Said, ToolText
from perdure.views.context import Message, ModelSaid, ToolSaid, UserSaid
from perdure.views.title import storable

if TYPE_CHECKING:
    from pydantic_ai import exceptions as x
    from pydantic_ai import messages as m
    from pydantic_ai.models import Model as TheirModel

NAME = re.compile(r"[^a-zA-Z0-9_-]")
LONGEST_ID = 40


class DirectModel:
    """One model of one provider."""

    def __init__(self, provider: str, name: str, make: Callable[[], TheirModel]) -> None:
        """`make` imports what it needs; it is called once, when the model is first called."""
        self.provider = provider
        self.name = name
        self._make = make
        self._made: TheirModel | None = None

    async def stream(self, request: Request) -> AsyncIterator[Said | Reply]:
        model = await self._reached()
        from pydantic_ai import exceptions, messages
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.models import ModelRequestParameters

        shown = rendered(request.messages, request.system, f"{self.provider}:{self.name}", messages)
        tools = ModelRequestParameters(function_tools=[_tool(tool) for tool in request.tools])
        try:
            async with model_request_stream(model, shown, model_request_parameters=tools) as response:
                async for event in response:
                    for said in _said(event, messages):
                        yield said
                answer = response.get()
        except exceptions.ModelAPIError as why:
            raise _failure(why, exceptions) from why
        except exceptions.ContentFilterError as why:
            raise ModelFailed("refused", str(why)) from why
        except exceptions.UnexpectedModelBehavior as why:
            raise ModelFailed("unfinished", str(why)) from why
        if answer.finish_reason is None:
            raise ModelFailed("unfinished", "the stream ended without a finish reason")
        if answer.finish_reason == "content_filter":
            raise ModelFailed("refused", "the provider's filter ended the answer")
        yield Reply(
            tuple(_parts(answer.parts, messages)), _usage(answer.usage), answer.finish_reason,
            answer.provider_response_id or "",
        )  # fmt: skip

    async def _reached(self) -> TheirModel:
        if self._made is None:
            self._made = await asyncio.to_thread(self._make)
        return self._made


# What is sent


def rendered(messages: Sequence[Message], system: str, me: str, m: Any) -> list[m.ModelMessage]:
    """A conversation in their words. Whoever said it, it is one that every provider takes."""
    shown: list[Any] = []
    for message in messages:
        match message:
            case UserSaid(parts=parts):
                _add(shown, m.ModelRequest, [m.UserPromptPart(_text(parts) or "(empty)")])
            case ToolSaid(call_id=call_id, name=name, parts=parts, failed=failed):
                outcome = "failed" if failed else "success"
                told = m.ToolReturnPart(
                    _name(name), _text(parts) or "(no output)", _id(call_id), outcome=outcome
                )
                _add(shown, m.ModelRequest, [told])
            case ModelSaid(parts=parts, model=model):
                _add(shown, m.ModelResponse, list(_sendable(parts, model == me, m)))
    if shown and isinstance(shown[-1], m.ModelRequest) and system:
        shown[-1].instructions = system
    return shown


def _add(shown: list[Any], kind: Any, parts: list[Any]) -> None:
    if not parts:
        return
    if shown and isinstance(shown[-1], kind):
        shown[-1].parts = [*shown[-1].parts, *parts]
    else:
        shown.append(kind(parts))


def _sendable(parts: Iterable[e.ReplyPart], mine: bool, m: Any) -> Iterable[Any]:
    for part in parts:
        match part:
            case e.Text(text=text) if text.strip():
                yield m.TextPart(storable(text))
            case e.Thinking(text=text, signature=signature) if mine and signature:
                yield m.ThinkingPart(text, signature=signature, provider_name="anthropic")
            case e.ToolCall(call_id=call_id, name=name, arguments=arguments):
                yield m.ToolCallPart(_name(name), _object(arguments), _id(call_id))
            case e.Blob():
                yield m.TextPart(_text((part,)))
            case _:
                continue


def _text(parts: Iterable[e.Part]) -> str:
    texts = (part.text if isinstance(part, e.Text) else _of_blob(part) for part in parts)
    return storable("\n".join(text for text in texts if text.strip()))


def _of_blob(blob: e.Blob) -> str:
    return f"[{blob.name or blob.media_type}, {blob.size} bytes]\n{blob.head}\n...\n{blob.tail}".rstrip("\n.")


def _name(name: str) -> str:
    """A name that providers take, for one that a model made up."""
    return NAME.sub("_", name)[:64] or "_"


def _id(call_id: str) -> str:
    return NAME.sub("_", call_id)[-LONGEST_ID:]


def _object(arguments: str) -> dict[str, Any]:
    try:
        found = json.loads(storable(arguments) or "{}")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"unreadable": storable(arguments)}


def _tool(tool: ToolText) -> Any:
    from pydantic_ai.tools import ToolDefinition

    return ToolDefinition(
        name=tool.name,
        parameters_json_schema=dict(tool.parameters),
        description=tool.description,
        strict=False,
    )


# What comes back


def _said(event: Any, m: Any) -> Iterable[Said]:
    match event:
        case (
            m.PartStartEvent(part=m.TextPart(content=text))
            | m.PartDeltaEvent(delta=m.TextPartDelta(content_delta=text))
        ):
            yield from [Said(text)] if text else []
        case (
            m.PartStartEvent(part=m.ThinkingPart(content=text))
            | m.PartDeltaEvent(delta=m.ThinkingPartDelta(content_delta=text))
        ):
            yield from [Said(text, "thinking")] if text else []
        case m.PartStartEvent(part=m.ToolCallPart(tool_name=name)):
            yield Said(name, "call")
        case m.PartDeltaEvent(delta=m.ToolCallPartDelta(args_delta=str(text))) if text:
            yield Said(text, "call")
        case _:
            return


def _parts(parts: Iterable[Any], m: Any) -> Iterable[e.ReplyPart]:
    for part in parts:
        match part:
            case m.TextPart(content=text):
                yield e.Text(text)
            case m.ThinkingPart(content=text, signature=signature):
                yield e.Thinking(text, signature or "")
            case m.ToolCallPart():
                written = part.args if isinstance(part.args, str) else part.args_as_json_str()
                yield e.ToolCall(part.tool_call_id, part.tool_name, written)
            case _:
                continue


def _usage(usage: Any) -> e.Usage:
    return e.Usage(
        usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens,
        usage.output_reasoning_tokens,
    )  # fmt: skip


def _failure(why: x.ModelAPIError, x: Any) -> ModelFailed:
    kinds: list[tuple[type[Exception], Reason]] = [
        (x.ModelQuotaExceededError, "quota"),
        (x.ModelRateLimitError, "rate_limited"),
        (x.ModelUnavailableError, "overloaded"),
        (x.ModelServerError, "server"),
        (x.ModelTimeoutError, "timeout"),
        (x.ModelRequestTimeout, "timeout"),
        (x.ModelConnectionError, "connection"),
        (x.ModelAuthenticationError, "unauthorized"),
        (x.ModelContextWindowExceededError, "context_full"),
        (x.ModelRequestRejectedError, "bad_request"),
    ]
    status = getattr(why, "status_code", None)
    reason = next((reason for kind, reason in kinds if isinstance(why, kind)), None) or _by_status(status)
    return ModelFailed(reason, why.message, status=status, retry_after=why.retry_after)


def _by_status(status: int | None) -> Reason:
    if status is None:
        return "unfinished"  # the stream came to an end that it did not name
    return "timeout" if status == 408 else "server" if status >= 500 else "bad_request"
