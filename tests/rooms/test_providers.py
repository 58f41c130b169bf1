"""Providers on a real socket, strict about what they take: what they say comes out as ours, and so does every failure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing

import pytest

from perdure import events as e
from perdure.config import Provider
from perdure.config.settings import Secret
from perdure.errors import ModelUnknown
from perdure.models import Model, ModelFailed, Reply, Request, Said, ToolText
from perdure.models.opening import first_with_a_key, open_model
from perdure.views.context import Message, ModelSaid, ToolSaid, UserSaid, note
from tests.fakes.provider import KEY, SPEAKING, Speech, listening, model_at

pytestmark = pytest.mark.anyio

TOOL = ToolText("shell", "runs a command", {"type": "object", "properties": {"command": {"type": "string"}}})
HELLO = [UserSaid((e.Text("Hello, 안녕 👋"),))]


async def answered(model: Model, messages: Sequence[Message] = HELLO) -> tuple[str, Reply]:
    words, reply = "", None
    async for one in model.stream(Request(messages, "Be brief.", [TOOL])):
        if isinstance(one, Said) and one.channel == "text":
            words += one.text
        if isinstance(one, Reply):
            reply = one
    assert reply is not None
    return words, reply


@pytest.mark.parametrize("provider", SPEAKING)
async def test_an_answer_is_streamed_and_comes_whole_at_the_end(provider: str) -> None:
    call = ("call_1", "shell", '{"command": "ls -l"}')
    async with listening(lambda _: Speech("Let me look at it. 좋아요", calls=(call,))) as fake:
        words, reply = await answered(model_at(provider, fake))
    assert fake.refused == []
    assert words == "Let me look at it. 좋아요"
    assert reply.parts == (e.Text(words), e.ToolCall(*call))
    assert (reply.usage.input, reply.usage.output) == (11, 7)
    assert reply.finish == ("stop" if provider == "openai-responses" else "tool_call")
    assert reply.response_id


CONVERSATIONS: dict[str, list[Message]] = {
    "cut off": [
        *HELLO,
        ModelSaid((e.Text("I was about to "),)),
        UserSaid((note("Your answer was cut off here (interrupted)."),)),
    ],
    "tools": [
        *HELLO,
        ModelSaid(
            (e.Text("Two things."), e.ToolCall("a", "shell", "{}"), e.ToolCall("b", "shell", '{"x": 1}'))
        ),
        ToolSaid("a", "shell", (e.Text("one"),), False),
        ToolSaid("b", "shell", (), True),
        ModelSaid((e.ToolCall("c", "no such tool!", "no json"),)),
        ToolSaid("c", "no such tool!", (e.Text("There is none."),), True),
        UserSaid((e.Text("Go on."),)),
    ],
    "odd ids": [
        *HELLO,
        ModelSaid((e.ToolCall("call|with:signs/" + "x" * 90, "shell", "[1]"),)),
        ToolSaid("call|with:signs/" + "x" * 90, "shell", (e.Text("\0\ud800"),), False),
    ],
    "nothing in it": [UserSaid((e.Text(" "),)), ModelSaid((e.Text(" \n"),)), UserSaid(())],
    "somebody else's thoughts": [
        *HELLO,
        ModelSaid((e.Thinking("hm", "signed by another"), e.Text("So.")), "anthropic:another"),
        ModelSaid((e.Thinking("hm", ""),), "anthropic:fake-model"),
        UserSaid((e.Text("Go on."),)),
    ],
    "nasty": [UserSaid((e.Text("\0\ud800 \u2028 שלום <runtime-note>"), e.Blob("ab", 5, name="a.png")))],
}


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("provider", SPEAKING)
async def test_every_conversation_is_taken(provider: str, conversation: str) -> None:
    async with listening(lambda _: Speech("Yes.")) as fake:
        words, _ = await answered(model_at(provider, fake), CONVERSATIONS[conversation])
    assert fake.refused == []
    assert words == "Yes."


async def test_sealed_thoughts_go_back_to_the_one_who_sealed_them() -> None:
    async with listening(lambda _: Speech("So.", thinking="Let me see.")) as fake:
        model = model_at("anthropic", fake)
        _, reply = await answered(model)
        assert reply.parts == (e.Thinking("Let me see.", "signed-0"), e.Text("So."))
        more = [*HELLO, ModelSaid(tuple(reply.parts), "anthropic:fake-model"), *HELLO]
        await answered(model, more)
    assert fake.refused == []
    assert "signed-0" in str(fake.requests[-1]["messages"])


FAILURES: dict[str, tuple[Speech, Mapping[str, str], str]] = {
    "dropped in the middle": (Speech("one two three four", end="drop", after=4), {}, "connection"),
    "a clean end without a finish": (Speech("one two three", end="no finish"), {}, "unfinished"),
    "an error in the stream": (Speech("one two three", end="error", after=4), {}, "overloaded"),
    "429": (
        Speech(status=429, headers=(("retry-after", "7"),), error="rate_limit_error"),
        {},
        "rate_limited",
    ),
    "500": (Speech(status=500), {}, "server"),
    "503": (Speech(status=503), {}, "overloaded"),
    "408": (Speech(status=408), {}, "timeout"),
    "401": (Speech(status=401, error="authentication_error"), {}, "unauthorized"),
    "400": (Speech(status=400, error="invalid_request_error"), {}, "bad_request"),
    "404": (Speech(status=404, error="not_found_error"), {}, "bad_request"),
    "402": (Speech(status=402), {}, "quota"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("provider", SPEAKING)
async def test_every_failure_has_its_word(provider: str, failure: str) -> None:
    speech, _, reason = FAILURES[failure]
    async with listening(lambda _: speech) as fake:
        with pytest.raises(ModelFailed) as failed:
            await answered(model_at(provider, fake))
    assert fake.refused == []
    assert len(fake.requests) == 1, "no attempt that nobody knows of"
    assert failed.value.reason == reason, failed.value
    assert failed.value.retry_after == (7.0 if failure == "429" else None)
    assert failed.value.error
    assert KEY not in str(failed.value)


@pytest.mark.parametrize("provider", SPEAKING)
async def test_a_stream_that_stalls_can_be_left(provider: str) -> None:
    async with listening(lambda _: Speech("one two three", end="stall", after=6)) as fake:
        async with aclosing(model_at(provider, fake).stream(Request(HELLO))) as answer:  # type: ignore[type-var]
            async with asyncio.timeout(20):
                while not isinstance(await anext(answer), Said):
                    pass
        async with asyncio.timeout(5):
            while fake.open:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def test_the_first_provider_with_a_key_is_used_and_a_missing_one_is_a_sentence() -> None:
    assert first_with_a_key({}, {}) is None
    assert first_with_a_key({}, {"OPENAI_API_KEY": "x"}) == "openai:gpt-6.1-terra"
    assert (
        first_with_a_key({"anthropic": Provider(Secret("x"))}, {"OPENAI_API_KEY": "x"})
        == "anthropic:claude-sonnet-5-5"
    )
    with pytest.raises(ModelUnknown, match="set ANTHROPIC_API_KEY, or api_key under"):
        open_model("anthropic:claude", {}, {})
    for name in ("claude", "anthropic:", "nobody:x", ""):
        with pytest.raises(ModelUnknown, match="use one of"):
            open_model(name, {}, {})
    assert open_model("ollama:llama", {}, {}).provider == "ollama"


async def test_a_server_of_ones_own_is_reached_by_the_name_it_was_given() -> None:
    async with listening(lambda _: Speech("Here.")) as fake:
        said = {"local": Provider(Secret(KEY), fake.address + "/v1")}
        words, _ = await answered(open_model("local:small", said, {}))
    assert (words, fake.refused, fake.requests[0]["model"]) == ("Here.", [], "small")
