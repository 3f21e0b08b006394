"""One producer, one consumer: chunks of a request, then the end of it.

python one_to_one.py
"""

from __future__ import annotations

import multiprocessing

import numpy as np

from omni_shmring import Transport

SCOPE = "example-one-to-one"


def thinker() -> None:
    with Transport("thinker", scope=SCOPE) as tx:
        for chunk in range(5):
            codes = np.arange(28, dtype=np.int64) + chunk
            tx.put("talker", f"req-1:{chunk}", {"codes": codes, "finished": chunk == 4})


def main() -> None:
    producer = multiprocessing.get_context("spawn").Process(target=thinker)
    with Transport("talker", scope=SCOPE) as rx:
        producer.start()
        chunk, finished = 0, False
        while not finished:
            got = rx.wait("thinker", f"req-1:{chunk}", timeout_s=30)
            assert got is not None, "the thinker did not answer"
            finished = got.payload["finished"]
            print(f"chunk {chunk}: codes {got.payload['codes'][0]}..{got.payload['codes'][-1]}, {got.nbytes} bytes")
            chunk += 1
    producer.join()


if __name__ == "__main__":
    main()
