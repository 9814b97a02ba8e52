"""Llama in plain PyTorch, with the names and the [out, in] weights of Hugging Face's LlamaForCausalLM: the other side of the
parity tests where transformers is not installed, and of the benchmark."""

import torch
import torch.nn.functional as F


def linear(inputs, outputs):
    return torch.nn.Linear(inputs, outputs, bias=False)


class RmsNorm(torch.nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotate(x, cos, sin):
    """x [batch, heads, length, head]; the halves of a head are the pairs' two sides."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Attention(torch.nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.head = width // heads
        self.q_proj = linear(width, width)
        self.k_proj = linear(width, kv_heads * self.head)
        self.v_proj = linear(width, kv_heads * self.head)
        self.o_proj = linear(width, width)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        q, k, v = (p(x).view(batch, length, -1, self.head).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, width))


class Mlp(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj = linear(width, hidden)
        self.up_proj = linear(width, hidden)
        self.down_proj = linear(hidden, width)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(torch.nn.Module):
    def __init__(self, width, heads, kv_heads, hidden, eps):
        super().__init__()
        self.input_layernorm = RmsNorm(width, eps)
        self.self_attn = Attention(width, heads, kv_heads)
        self.post_attention_layernorm = RmsNorm(width, eps)
        self.mlp = Mlp(width, hidden)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(torch.nn.Module):
    def __init__(self, layers, width, heads, context, kv_heads=None, hidden=None, tied=True, theta=10000.0, eps=1e-5, vocab=256):
        super().__init__()
        kv_heads = kv_heads or heads
        hidden = hidden or (-(-8 * width // 3) + 63) // 64 * 64
        self.model = torch.nn.ModuleDict({
            "embed_tokens": torch.nn.Embedding(vocab, width),
            "layers": torch.nn.ModuleList(Block(width, heads, kv_heads, hidden, eps) for _ in range(layers)),
            "norm": RmsNorm(width, eps),
        })
        if not tied:
            self.lm_head = linear(width, vocab)
        head = width // heads
        frequencies = 1.0 / (theta ** (torch.arange(0, head, 2, dtype=torch.float) / head))
        angles = torch.arange(context, dtype=torch.float)[:, None] * frequencies
        self.angles = torch.cat((angles, angles), dim=-1)
        self.config = {
            "model_type": "llama", "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "intermediate_size": hidden, "max_position_embeddings": context,
            "vocab_size": vocab, "rms_norm_eps": eps, "rope_theta": theta, "tie_word_embeddings": tied,
        }

    def forward(self, tokens):
        m = self.model
        angles = self.angles[: tokens.size(1)]
        x = m.embed_tokens(tokens)
        for block in m["layers"]:
            x = block(x, angles.cos(), angles.sin())
        head = self.lm_head.weight if hasattr(self, "lm_head") else m.embed_tokens.weight
        return m.norm(x) @ head.t()
