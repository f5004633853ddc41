"""The engine for coroutines: tokens come while the event loop goes on with other work."""

import asyncio
from collections.abc import AsyncIterator

from attn_core.contract import kind
from attn_core.serving.engine import Engine
from attn_core.serving.request import Request


class AsyncEngine:
    """Serves any number of coroutines of one event loop with one ``Engine``, whose steps run in a thread of their own.

    A coroutine that has no new token takes the next step, for all requests; the others wait for it. So there is no
    background task to start or to stop. While it is in use, the engine should not be used directly.

    Raises:
        ValueError: if ``engine`` is not an ``Engine``.
    """

    def __init__(self, engine: Engine) -> None:
        if not isinstance(engine, Engine):
            raise ValueError(f"engine: expected an Engine, got {kind(engine)}")
        self.engine = engine
        self._between_steps = asyncio.Lock()  # a request joins or leaves only while no step is running

    async def stream(self, request: Request) -> AsyncIterator[int]:
        """Add a request; give its tokens as they come.

        Whoever stops iterating, or is cancelled, cancels the request and frees its blocks. Raises as ``Engine.add``,
        and whatever ended the request with an error. If a step fails, the coroutine that took it gets the error, and
        the others go on.
        """
        async with self._between_steps:
            completion = self.engine.add(request)
        sent = 0
        try:
            while True:
                for token in completion.ids[sent:]:
                    sent += 1
                    yield token
                if completion.error is not None:
                    raise completion.error
                if completion.finish_reason is not None:
                    return
                async with self._between_steps:
                    if len(completion.ids) == sent and completion.finish_reason is None:
                        await self._step()
        finally:
            async with self._between_steps:
                self.engine.cancel(completion)

    async def _step(self) -> None:
        step = asyncio.ensure_future(asyncio.to_thread(self.engine.step))
        try:
            await asyncio.shield(step)
        except asyncio.CancelledError:
            await asyncio.wait([step])  # a thread cannot be stopped, and the other requests want its tokens
            raise
