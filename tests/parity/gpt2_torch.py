"""GPT-2 in plain PyTorch, with the names and the [in, out] weights of Hugging Face's GPT2LMHeadModel: the other side of
the parity tests and of the benchmark."""

import torch
import torch.nn.functional as F


class Linear(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(inputs, outputs))
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


class Attention(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn = Linear(width, 3 * width)
        self.c_proj = Linear(width, width)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        parts = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in self.c_attn(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class Mlp(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Linear(width, 4 * width)
        self.c_proj = Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = torch.nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = torch.nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(torch.nn.Module):
    def __init__(self, layers, width, heads, context, vocab=256):
        super().__init__()
        self.transformer = torch.nn.ModuleDict({
            "wte": torch.nn.Embedding(vocab, width),
            "wpe": torch.nn.Embedding(context, width),
            "h": torch.nn.ModuleList(Block(width, heads) for _ in range(layers)),
            "ln_f": torch.nn.LayerNorm(width),
        })
        self.config = {
            "model_type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": context,
            "vocab_size": vocab,
        }

    def forward(self, tokens):
        t = self.transformer
        x = t.wte(tokens) + t.wpe.weight[: tokens.size(1)]
        for block in t.h:
            x = block(x)
        return t.ln_f(x) @ t.wte.weight.t()
