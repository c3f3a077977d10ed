"""Cross-entropy of a large vocabulary, without the whole [tokens, vocabulary] matrix.

With e = exp(z − max z) of the logits z = x Wᵀ and s its row sums, the gradient of a token's loss by its logits is
e/s − (1 − ε) onehot − ε/V. Only e is as wide as the vocabulary: the normaliser, the one-hot and the smoothing act on
tensors as wide as the model. Each chunk of logits is computed, exponentiated and used twice in one buffer.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from odeum.kernels.autograd import gradients_of, needs_plain_gradients, plain_autograd

IGNORE = -100
"""label of a position that does not count"""
BUFFER = 1 << 23
"""logits per chunk: 32 MiB in float32, at which products reach their full rate"""
LARGE_MATRIX = 1 << 23
"""weights from which a chunk has twice as many logits: each chunk reads the matrix and its gradient from memory"""

TILE = 1 << 18
"""bfloat16 logits per tile of their exponentials: 1 MiB in float32, which stays in a core's cache"""


def exact(x: Tensor) -> Tensor:
    """Return x in float32, or unchanged if it is float64: the precision of losses."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def reference(x: Tensor, weight: Tensor, labels: Tensor, smoothing: float, *_: None) -> Tensor:
    """Compute the loss by plain operations, differentiable in every way."""
    logits = exact(nn.functional.linear(x, weight.to(x.dtype)))
    total = nn.functional.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
    return total / (labels != IGNORE).sum().clamp(min=1)


def cross_entropy(
    x: Tensor, weight: Tensor, labels: Tensor, smoothing: float = 0.0, chunk: int | None = None
) -> Tensor:
    """Return the mean loss over labels that are not ignored, of x [tokens, width] and weight [vocabulary, width]."""
    if not torch.is_grad_enabled():
        x, weight = x.detach(), weight.detach()
    if not plain_autograd() and not torch.compiler.is_compiling():
        return reference(x, weight, labels, smoothing)
    if chunk is None:
        chunk = max(32, BUFFER * (2 if weight.numel() > LARGE_MATRIX else 1) // weight.shape[0])
    return _Chunked.apply(x, weight, labels, smoothing, chunk)


def _product_type(x: Tensor) -> torch.dtype:
    """Return the dtype of the logits: autocast does not apply to products with `out=`."""
    device = x.device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):  # the meta device has none
        return x.dtype
    return torch.get_autocast_dtype(device)


_workspace = threading.local()


def _buffer(rows: int, columns: int, like: Tensor) -> Tensor:
    """Return an uninitialized matrix. On a CPU its memory, at most 64 MiB, is kept by the thread for its next call:
    a fresh one of this size would be mapped page by page in every call."""
    count = rows * columns
    if type(like) not in (Tensor, nn.Parameter) or like.device.type != "cpu" or torch.compiler.is_compiling():
        return like.new_empty(rows, columns)
    if like.dtype not in (torch.float32, torch.bfloat16) or count > 2 * BUFFER:
        return like.new_empty(rows, columns)
    buffers = _workspace.__dict__
    name = str(like.dtype)
    if name not in buffers or buffers[name].numel() < count:
        with torch.inference_mode(False):
            buffers[name] = torch.empty(count, dtype=like.dtype, device="cpu")
    return buffers[name][:count].view(rows, columns)


def _exponentials(logits: Tensor, tile: Tensor) -> tuple[Tensor, Tensor]:
    """Replace bfloat16 logits by e, computed in a float32 tile of some rows. Returns the row maxima and sums."""
    top, s = (tile.new_empty(logits.shape[0], 1) for _ in range(2))
    for start in range(0, logits.shape[0], tile.shape[0]):
        here = slice(start, start + tile.shape[0])
        e = tile[: logits[here].shape[0]].copy_(logits[here])
        top[here] = e.amax(dim=1, keepdim=True)
        s[here] = e.sub_(top[here]).exp_().sum(dim=1, keepdim=True)
        logits[here] = e
    return top, s


class _Chunked(torch.autograd.Function):
    """Computes the gradient of each chunk in the forward pass, while its logits exist; nothing large is kept.

    Under bfloat16 autocast all three products have bfloat16 factors; exponentials and sums are in single precision.
    Otherwise the products of the gradient are in single precision at least: in float16 one token's share of a mean over
    many may underflow before a gradient scaler multiplies it, and a bfloat16 model has no single-precision weights.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, labels: Tensor, smoothing: float, chunk: int) -> Tensor:
        tokens, vocabulary = x.shape[0], weight.shape[0]
        keep = labels != IGNORE
        count = keep.sum().clamp(min=1)
        picked = labels.clamp(min=0)
        share = exact(keep.to(x.dtype)) / count  # weight of each token in the mean
        fine = exact(weight)
        mean = fine.mean(dim=0) if smoothing else None
        label_rows = nn.functional.embedding(picked, weight)
        narrow = weight.to(_product_type(x)).T
        grad_x = torch.empty_like(exact(x)) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(fine) if ctx.needs_input_grad[1] else None
        rows = min(chunk, tokens)
        product = _buffer(rows, vocabulary, narrow)
        low = narrow.dtype is torch.bfloat16 and weight.dtype is torch.float32  # autocast
        tiled = low and x.device.type == "cpu" and not torch.compiler.is_compiling()
        rows = min(rows, max(1, TILE // vocabulary)) if tiled else rows
        buffer = product if narrow.dtype == fine.dtype else _buffer(rows, vocabulary, fine)
        total = exact(x.new_zeros(()))
        for start in range(0, tokens, chunk):
            here = slice(start, start + chunk)
            part, wide = x[here].to(narrow.dtype), exact(x[here])
            logits = torch.mm(part, narrow, out=product[: part.shape[0]])
            right = exact(logits.gather(1, picked[here].unsqueeze(1)))
            if low:
                top, s = _exponentials(logits, buffer)
                e = logits
            else:
                e = logits if buffer is product else buffer[: part.shape[0]].copy_(logits)
                top = e.amax(dim=1, keepdim=True)
                s = e.sub_(top).exp_().sum(dim=1, keepdim=True)
            log_z = top + s.log()
            nll = log_z - right
            if mean is not None:
                nll = nll + smoothing * (right - (wide * mean).sum(dim=1, keepdim=True))
            total += nll.squeeze(1).masked_fill(~keep[here], 0.0).sum()
            scaled = wide * (share[here].unsqueeze(1) / s)
            if grad_x is not None and low:
                grad_x[here] = (e @ narrow.T) / s
            elif grad_x is not None:
                torch.mm(e, fine, out=grad_x[here]).div_(s)
            if grad_weight is not None and low:
                grad_weight += e.T @ scaled.to(e.dtype)
            elif grad_weight is not None:
                grad_weight.addmm_(e.T, scaled)
        if grad_x is not None:
            grad_x.sub_(exact(label_rows), alpha=1 - smoothing)
            if mean is not None:
                grad_x.sub_(mean, alpha=smoothing)
            grad_x.mul_(share.unsqueeze(1))
        if grad_weight is not None:
            shared = exact(x) * share.unsqueeze(1)
            grad_weight.index_add_(0, picked, shared, alpha=smoothing - 1)
            if smoothing:
                grad_weight.sub_(shared.sum(dim=0), alpha=smoothing / vocabulary)
        ctx.save_for_backward(x, weight, labels, grad_x, grad_weight)
        ctx.smoothing = smoothing
        return total / count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, labels, grad_x, grad_weight = ctx.saved_tensors
        if needs_plain_gradients(grads[0]):
            inputs = (x, weight, labels, ctx.smoothing, None)
            return gradients_of(reference, inputs, ctx.needs_input_grad, grads[0])
        return (
            None if grad_x is None else (grad_x * grads[0].to(grad_x.dtype)).to(x.dtype),
            None if grad_weight is None else (grad_weight * grads[0].to(grad_weight.dtype)).to(weight.dtype),
            None,
            None,
            None,
        )
