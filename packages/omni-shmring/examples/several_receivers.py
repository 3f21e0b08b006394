"""Several workers compete for the jobs of one stage; each job is done exactly once, whichever worker dies.

python several_receivers.py
"""

from __future__ import annotations

import multiprocessing

from omni_shmring import Transport

SCOPE = "example-several-receivers"
JOBS = 60


def worker(name: str) -> None:
    with Transport("worker", scope=SCOPE) as stage:
        stage.put("source", f"ready:{name}", True)
        open_jobs = set(range(JOBS))
        while open_jobs:
            if stage.get("source", f"stop:{name}") is not None:
                return
            for job in sorted(open_jobs):
                got = stage.get("source", f"job:{job}")
                if got is not None:  # this one is ours alone
                    stage.put("source", f"done:{job}", {"by": name, "square": got.payload**2})
                    open_jobs.discard(job)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    names = ["ada", "grace", "hedy"]
    workers = [context.Process(target=worker, args=(name,)) for name in names]
    with Transport("source", scope=SCOPE) as source:
        for each in workers:
            each.start()
        for name in names:
            source.wait("worker", f"ready:{name}", timeout_s=60)
        for job in range(JOBS):
            source.put("worker", f"job:{job}", job)
        done: dict[str, int] = dict.fromkeys(names, 0)
        for job in range(JOBS):
            got = source.wait("worker", f"done:{job}", timeout_s=60)
            assert got is not None
            assert got.payload["square"] == job**2
            done[got.payload["by"]] += 1
        for name in names:
            source.put("worker", f"stop:{name}", True)
        for each in workers:
            each.join()
        print(f"{sum(done.values())} jobs, each done once: {done}")
        source.close(linger_s=0)


if __name__ == "__main__":
    main()
