"""Recording on CUDA through torch.cuda.CUDAGraph."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch


class CudaCaptured:
    """A CUDA graph with its own input and output memory."""

    def __init__(self, graph: torch.cuda.CUDAGraph, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        self.inputs, self.output = inputs, output
        self._graph = graph

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        self._graph.replay()


class CudaCaptureBackend:
    """Implements :class:`omni_serve.graphs.cache.CaptureBackend` where a CUDA device is."""

    def handles(self, device: torch.device) -> bool:
        """CUDA devices, and not while somebody else records."""
        return device.type == "cuda" and not torch.cuda.is_current_stream_capturing()

    def stream(self, device: torch.device) -> Hashable:
        """The current stream's handle."""
        return torch.cuda.current_stream(device).cuda_stream

    def free_bytes(self, device: torch.device) -> int:
        """What the driver has free, and what torch's allocator holds unused."""
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)

    def new_pool(self, device: torch.device) -> Any:
        """A private pool of torch's allocator."""
        return torch.cuda.graph_pool_handle()

    def capture(
        self, run: Callable[[tuple[torch.Tensor, ...]], Any], inputs: tuple[torch.Tensor, ...], pool: Any
    ) -> CudaCaptured:
        """Record on a side stream, as torch.cuda.graph does; the current stream waits for it."""
        held = tuple(torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t) for t in inputs)
        torch.cuda.current_stream(inputs[0].device).synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(inputs[0].device), torch.cuda.graph(graph, pool=pool):
            output = run(held)
        return CudaCaptured(graph, held, output)
