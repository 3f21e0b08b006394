"""A scripted realtime server, for this package's tests and for people who write clients of their own.

::

    async with ScriptedServer(Script(reply_s=1.0)) as server:
        async with RealtimeClient(server.url) as client:
            ...
"""

from omni_duplex_bench.testing.script import Fault, Script, speechlike
from omni_duplex_bench.testing.server import ScriptedServer

__all__ = ["Fault", "Script", "ScriptedServer", "speechlike"]
