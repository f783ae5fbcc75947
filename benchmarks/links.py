"""A slow link: what goes through it to an address on loopback, and back, arrives late. It can be cut."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

PIECE = 1 << 16  # bytes that are carried at once


class SlowLink:
    """A TCP proxy in a thread of this process that keeps each piece for so many ``seconds``, in both directions."""

    def __init__(self, port: int, seconds: float) -> None:
        self.to, self.seconds, self.port = port, seconds, 0
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._ready.wait()

    def cut(self) -> None:
        """End all connections, without a word to either side; new ones are taken at once."""
        self._loop.call_soon_threadsafe(self._abort)

    def close(self) -> None:
        """End the proxy."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)

    def _abort(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._carry, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _carry(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            far, on = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:  # nobody is there
            back.transport.abort()
            return
        self._writers |= {back, on}
        await asyncio.gather(self._pipe(near, on), self._pipe(far, back))
        self._writers -= {back, on}

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(PIECE):
                await asyncio.sleep(self.seconds)
                sink.write(piece)
                await sink.drain()
        sink.close()
