"""Offload a stack of blocks, look at what goes where, and check the result."""

from __future__ import annotations

import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(6))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return x


def main() -> None:
    model = Model().eval()
    tokens = torch.arange(20).reshape(2, 10)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.inference_mode():
        expected = model.to(device)(tokens.to(device)).cpu()
        with Offloader(model, OffloadConfig(device=device, resident_blocks=2)) as offloader:
            print(offloader.explain())
            for _ in range(3):
                output = model(tokens.to(device))
            print(offloader.stats())
    print("equal to the resident model:", torch.equal(output.cpu(), expected))


if __name__ == "__main__":
    main()
