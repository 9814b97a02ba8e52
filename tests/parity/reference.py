"""What the trainer must reproduce of a model in PyTorch (gpt2_torch.py, llama_torch.py, or transformers' own)."""

import torch
import torch.nn.functional as F


def mean_loss(logits, targets):
    """Mean cross-entropy."""
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))


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
            if p.dim() == 1 and name.endswith(".weight"):  # a norm's
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
        logits = model(inputs)
        loss = mean_loss(logits, targets)
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out["logits"] = logits.detach().clone()
            out.update({name + ".grad": p.grad.clone() for name, p in model.named_parameters()})
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optim.step()
    out["losses"] = torch.stack(losses)
    return out
