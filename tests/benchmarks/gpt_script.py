"""A plain training script, which knows nothing of who records it: a GPT, AdamW, a step for each line of stdin.

    python gpt_script.py WIDTH DEPTH

After each step it prints [seconds of the step, of these on the processor: the training thread, all threads], after the
last one [parameters, peak memory in bytes, the last loss]. Its weights begin as those of nanoGPT do: embeddings of unit
variance would make numbers so small that processors take a hundred times as long for them.
"""

import json
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, CONTEXT, BATCH = 256, 128, 4


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.tokens(codes) + self.positions.weight)))


def main(width: int, depth: int) -> None:
    torch.manual_seed(0)
    model = Gpt(width, depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    loss = torch.zeros(())
    for _ in sys.stdin:
        clocks = (time.perf_counter, time.thread_time, time.process_time)
        started = [clock() for clock in clocks]
        codes = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
        loss = functional.cross_entropy(model(codes[:, :-1]).flatten(0, 1), codes[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(json.dumps([clock() - before for clock, before in zip(clocks, started, strict=True)]), flush=True)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([sum(one.numel() for one in model.parameters()), peak_bytes, loss.item()]), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
