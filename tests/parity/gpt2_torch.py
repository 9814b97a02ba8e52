"""GPT-2 in plain PyTorch, with the names and the [in, out] weights of the native trainer: the other side of the parity
tests and of the benchmark."""

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

    def forward(self, tokens):
        t = self.transformer
        x = t.wte(tokens) + t.wpe.weight[: tokens.size(1)]
        for block in t.h:
            x = block(x)
        return t.ln_f(x) @ t.wte.weight.t()

    def loss(self, inputs, targets):
        """Mean cross-entropy, and the logits."""
        logits = self(inputs)
        return F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1)), logits


def optimizer(model, lr, weight_decay=0.1, betas=(0.9, 0.95)):
    """AdamW as the trainer's: matrices decay, vectors do not."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=1e-8)


def randomize(model, seed, spread=0.1):
    """Weights far from the start's symmetries (norms at 1, biases at 0), so that every gradient counts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * spread)
            if ".ln_" in name and name.endswith(".weight"):
                p.add_(1.0)


def reference(model, batch, steps=10, lr=1e-3, clip=1.0):
    """What the trainer must reproduce, as named tensors: the weights, the batch, logits and gradients of the mean loss, and the
    losses of `steps` AdamW steps on that batch. Changes the model."""
    inputs, targets = batch[:, :-1].long(), batch[:, 1:].long()
    out = {name: p.detach().clone() for name, p in model.named_parameters()}
    out["batch"] = batch.to(torch.int32)
    optim, losses = optimizer(model, lr), []
    for step in range(steps):
        optim.zero_grad()
        loss, logits = model.loss(inputs, targets)
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out["logits"] = logits.detach().clone()
            out.update({name + ".grad": p.grad.clone() for name, p in model.named_parameters()})
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optim.step()
    out["losses"] = torch.stack(losses)
    return out
