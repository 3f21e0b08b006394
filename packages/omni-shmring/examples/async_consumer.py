"""A server's event loop waits for many requests at once, without a thread, and gives up on one of them.

python async_consumer.py
"""

from __future__ import annotations

import asyncio
import multiprocessing

from omni_shmring import Transport

SCOPE = "example-async-consumer"


def engine() -> None:
    with Transport("engine", scope=SCOPE) as stage:
        for request in range(8):
            prompt = stage.wait("server", f"prompt:{request}", timeout_s=60)
            assert prompt is not None
            for chunk in range(3):
                stage.put("server", f"answer-{request}:{chunk}", f"{prompt.payload}/{chunk}")
        # What nobody will ask for any more is taken back, in one call a request.
        stage.wait("server", "abort:7", timeout_s=60)
        stage.cancel_prefix("server", "answer-7:")


async def handle(stage: Transport, request: int) -> list[str]:
    stage.put("engine", f"prompt:{request}", f"prompt {request}")
    chunks = []
    for chunk in range(3):
        got = await stage.wait_async("engine", f"answer-{request}:{chunk}", timeout_s=60)
        assert got is not None
        chunks.append(got.payload)
    return chunks


async def serve() -> None:
    with Transport("server", scope=SCOPE) as stage:
        tasks = [asyncio.create_task(handle(stage, request)) for request in range(7)]
        impatient = asyncio.create_task(stage.wait_async("engine", "answer-7:never"))
        for answer in await asyncio.gather(*tasks):
            print(*answer, sep=", ")
        impatient.cancel()  # prompt, and nothing is lost by it
        stage.put("engine", "prompt:7", "prompt 7")
        stage.put("engine", "abort:7", True)
        print("cancelled:", (await asyncio.gather(impatient, return_exceptions=True))[0].__class__.__name__)


def main() -> None:
    process = multiprocessing.get_context("spawn").Process(target=engine)
    process.start()
    asyncio.run(serve())
    process.join()


if __name__ == "__main__":
    main()
