"""From a model's name to the model: `anthropic:claude-...`, `openai:...`, `ollama:...`, `scripted`.

A name is looked up without importing any provider's library: whether a key is there can be said at once, and the library
is imported by the first call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from perdure.config import Provider, Settings
from perdure.errors import ModelUnknown
from perdure.models import Model
from perdure.models.demo import DemoModel
from perdure.models.direct import DirectModel

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

NO_KEY = "no-key-needed"
TIMEOUT = 600.0
"""Seconds of silence after which a connection counts as lost."""


@dataclass(frozen=True, slots=True)
class Known:
    """A provider, and how it is reached."""

    speaks: Literal["chat", "responses", "anthropic"]
    key: str = ""
    """The variable that holds its key; empty if it wants none."""
    address: str = ""
    """The variable that holds its address, if that is not the usual one."""
    usual: str | None = None
    default: str = ""
    """The model that is used if its key is set and nobody names one."""


PROVIDERS = {
    "anthropic": Known("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", default="claude-sonnet-5-5"),
    "openai": Known("chat", "OPENAI_API_KEY", "OPENAI_BASE_URL", default="gpt-6.1-terra"),
    "openai-responses": Known("responses", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "openrouter": Known("chat", "OPENROUTER_API_KEY", usual="https://openrouter.ai/api/v1"),
    "ollama": Known("chat", address="OLLAMA_BASE_URL", usual="http://localhost:11434/v1"),
    "llamacpp": Known("chat", address="LLAMACPP_BASE_URL", usual="http://localhost:8080/v1"),
    "vllm": Known("chat", address="VLLM_BASE_URL", usual="http://localhost:8000/v1"),
}


def open_model(name: str, providers: Mapping[str, Provider], environ: Mapping[str, str]) -> Model:
    """The model of this name. Raises `ModelUnknown` with a sentence that says what to set."""
    if name == "demo":
        return DemoModel()
    provider, _, model = name.partition(":")
    said = providers.get(provider, Provider())
    known = PROVIDERS.get(provider) or (Known("chat") if said.base_url else None)
    if known is None or not model:
        names = ", ".join(f"{each}:NAME" for each in PROVIDERS)
        raise ModelUnknown(name, f"is no name of a model; use one of {names}, or demo")
    key = said.api_key.value if said.api_key else environ.get(known.key, "") if known.key else NO_KEY
    address = said.base_url or environ.get(known.address) or known.usual
    if not key and not address:
        raise ModelUnknown(
            name, f"needs a key: set {known.key}, or api_key under [providers.{provider}] in your config.toml"
        )
    return DirectModel(provider, model, lambda: _made(known.speaks, model, key or NO_KEY, address))


def choose_model(asked: str | None, session: str, settings: Settings, environ: Mapping[str, str]) -> str:
    """Whose word counts: the command line's, the session's, the settings', the first key that is set; else `demo`."""
    return asked or session or settings.model or first_with_a_key(settings.providers, environ) or "demo"


def first_with_a_key(providers: Mapping[str, Provider], environ: Mapping[str, str]) -> str | None:
    """The default model of the first provider whose key is set."""
    for name, known in PROVIDERS.items():
        said = providers.get(name, Provider())
        if known.default and (said.api_key or environ.get(known.key)):
            return f"{name}:{known.default}"
    return None


def _made(speaks: str, model: str, key: str, address: str | None) -> TheirModel:
    # No retries of the library's own: each attempt is a fact.
    options: dict[str, Any] = {"api_key": key, "base_url": address, "max_retries": 0, "timeout": TIMEOUT}
    if speaks == "anthropic":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=AsyncAnthropic(**options)))
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(openai_client=AsyncOpenAI(**options))
    if speaks == "responses":
        return OpenAIResponsesModel(model, provider=provider)
    profile = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
    return OpenAIChatModel(model, provider=provider, profile=profile)
