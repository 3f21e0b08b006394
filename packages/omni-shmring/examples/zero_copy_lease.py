"""Look at a message where it lies: a reduction over hidden states that need not be kept.

python zero_copy_lease.py
"""

from __future__ import annotations

import numpy as np

from omni_shmring import Transport

SCOPE = "example-lease"


def main() -> None:
    with Transport("encoder", scope=SCOPE) as tx, Transport("judge", scope=SCOPE) as rx:
        tx.put("judge", "clip-1", {"hidden": np.ones((256, 512), np.float32), "name": "clip-1"})
        lease = rx.lease("encoder", "clip-1")
        assert lease is not None
        with lease:
            # Read-only, uncopied; not to be used after the block: the producer writes there again.
            print("sum over", lease.nbytes, "bytes in place:", float(lease.payload["hidden"].sum()))
            print("still pending:", tx.stats().pending)
        print("pending after the lease:", tx.stats().pending)


if __name__ == "__main__":
    main()
