"""Cross-entropy of a large vocabulary, without the whole [tokens, vocabulary] matrix.

With e = exp(z − max z) of the logits z = x Wᵀ and s its row sums, the gradient of a token's loss by its logits is
e/s − (1 − ε) onehot − ε/V. Only e is as wide as the vocabulary: the normaliser, the one-hot and the smoothing act on
what is as wide as the model, so each chunk of logits is made, exponentiated and used twice, in one buffer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from odeum.kernels.autograd import gradients_of, more_than_a_gradient, plain_autograd
from odeum.kernels.matmul import matmul_backend

IGNORE = -100
"""the label of a position that does not count"""
BUFFER = 1 << 23
"""logits at a time: 32 MiB of them, at which products are at their full rate"""


def exact(x: Tensor) -> Tensor:
    """Return x in float32, or in float64 if it is; losses are computed so."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def reference(x: Tensor, weight: Tensor, labels: Tensor, smoothing: float, *_: None) -> Tensor:
    """Compute the loss by plain operations, differentiable in every way."""
    logits = exact(nn.functional.linear(x, weight.to(x.dtype)))
    total = nn.functional.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
    return total / (labels != IGNORE).sum().clamp(min=1)


def cross_entropy(
    x: Tensor, weight: Tensor, labels: Tensor, smoothing: float = 0.0, chunk: int | None = None
) -> Tensor:
    """Mean over the labels that are not ignored, of x [tokens, width] and weight [vocabulary, width]."""
    if not torch.is_grad_enabled():
        x, weight = x.detach(), weight.detach()
    if not plain_autograd() and not torch.compiler.is_compiling():
        return reference(x, weight, labels, smoothing)
    if chunk is None:
        chunk = max(32, BUFFER // weight.shape[0])
    return _Chunked.apply(x, weight, labels, smoothing, chunk)


def _product_type(x: Tensor) -> torch.dtype:
    """Of the logits: autocast does not see products that are told where to write."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class _Chunked(torch.autograd.Function):
    """The gradient of each chunk is made in the forward pass, while its logits are at hand; nothing large is kept.

    It is kept in single precision at least: a share of a mean over many tokens may be nothing in half precision before
    the scale of a gradient scaler reaches it, which is in the backward pass.
    """

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, labels: Tensor, smoothing: float, chunk: int) -> Tensor:
        tokens, vocabulary = x.shape[0], weight.shape[0]
        keep = labels != IGNORE
        count = keep.sum().clamp(min=1)
        picked = labels.clamp(min=0)
        share = exact(keep.to(x.dtype)) / count  # of each token in the mean
        fine, mean = exact(weight), exact(weight).mean(dim=0)
        own = nn.functional.embedding(picked, weight)  # the rows of the labels
        narrow = weight.to(_product_type(x)).T
        grad_x = torch.empty_like(exact(x)) if ctx.needs_input_grad[0] else None
        by = matmul_backend(min(chunk, tokens) * weight.numel(), x, weight)
        grads = by.sum() if ctx.needs_input_grad[1] else None
        buffer = narrow.new_empty(min(chunk, tokens), vocabulary)
        total = exact(x.new_zeros(()))
        for start in range(0, tokens, chunk):
            here = slice(start, start + chunk)
            part, wide = x[here].to(narrow.dtype), exact(x[here])
            logits = exact(by.times(part, narrow, buffer[: part.shape[0]]))
            right = logits.gather(1, picked[here].unsqueeze(1))
            top = logits.amax(dim=1, keepdim=True)
            e = logits.sub_(top).exp_()
            s = e.sum(dim=1, keepdim=True)
            log_z = top + s.log()
            nll = log_z - right
            if smoothing:
                nll = nll + smoothing * (right - (wide * mean).sum(dim=1, keepdim=True))
            total += nll.squeeze(1).masked_fill(~keep[here], 0.0).sum()
            scale = share[here].unsqueeze(1)
            if grad_x is not None:
                torch.div(by.times(e, fine, grad_x[here]), s, out=grad_x[here])
            if grads is not None:
                grads.add(e, wide * (scale / s))
            del logits, e  # their room may be that of the next chunk
        if grad_x is not None:
            grad_x.sub_(exact(own), alpha=1 - smoothing)
            if smoothing:
                grad_x.sub_(mean, alpha=smoothing)
            grad_x.mul_(share.unsqueeze(1))
        grad_weight = None
        if grads is not None:
            grad_weight = grads.total() if tokens else torch.zeros_like(fine)
            shared = exact(x) * share.unsqueeze(1)
            grad_weight.index_add_(0, picked, shared, alpha=smoothing - 1)
            if smoothing:
                grad_weight.sub_(shared.sum(dim=0), alpha=smoothing / vocabulary)
        ctx.save_for_backward(x, weight, labels, grad_x, grad_weight)
        ctx.smoothing = smoothing
        return total / count

    @staticmethod
    def backward(ctx, *grads: Tensor):
        x, weight, labels, grad_x, grad_weight = ctx.saved_tensors
        if more_than_a_gradient(grads[0]):
            inputs = (x, weight, labels, ctx.smoothing, None)
            return gradients_of(reference, inputs, ctx.needs_input_grad, grads[0])
        return (
            None if grad_x is None else (grad_x * grads[0].to(grad_x.dtype)).to(x.dtype),
            None if grad_weight is None else (grad_weight * grads[0].to(grad_weight.dtype)).to(weight.dtype),
            None,
            None,
            None,
        )
