"""What the children of the agent's tests do: each runs the turns of a store, and says what a viewer is shown."""

import asyncio
from contextlib import aclosing
from pathlib import Path

# The template imports what its children need: none of their rounds is spent on it.
import pydantic_ai.models.anthropic
import pydantic_ai.models.openai  # noqa: F401

from perdure.config import Provider
from perdure.config.settings import Secret
from perdure.models.opening import open_model
from perdure.policy.retrying import Retrying
from perdure.tools.shell import Shell
from perdure.worker import start
from tests.fakes.provider import KEY
from tests.kill.lives import digest
from tests.kill.template import Mouth


async def serve(mouth: Mouth, url: str, workspace: str, session: str, provider: str, address: str) -> None:
    """Run what is owed until told to stop, and say of every event that a viewer is shown its seq, digest and kind."""
    model = open_model(f"{provider}:fake", {provider: Provider(Secret(KEY), address)}, {})
    mouth.say("begun")
    async with await start(
        url, model=model, tools=[Shell()], workspace=Path(workspace), kind="worker", retrying=Retrying(base=0.0), deadline=0.0
    ) as agent:  # fmt: skip

        async def show() -> None:
            async with aclosing(agent.journal.follow(session)) as events:
                async for event in events:
                    mouth.say([event.seq, digest(event.fact), type(event.fact).__name__])

        showing = asyncio.create_task(show())
        await asyncio.to_thread(mouth.wait)
        await agent.settled(session)
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
    mouth.say("closed")
