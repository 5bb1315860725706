"""The linearized Laplace posterior by explicit Jacobians and dense algebra, importing nothing it checks."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def jacobian(model: nn.Module, x: Tensor) -> Tensor:
    """``(n c, d)``, a row of gradients for every output."""
    parameters = list(model.parameters())
    rows = []
    for value in model(x).flatten():
        parts = torch.autograd.grad(value, parameters, retain_graph=True)
        rows.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(rows)


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def curvature(model: nn.Module, x: Tensor, kind: str, noise: float = 1.0, at: Tensor | None = None) -> Tensor:
    """``B``, ``(n c, n c)``, at the network's outputs or at those of the affine tangent model with weights ``at``."""
    outputs = model(x).detach()
    if at is not None:
        outputs = outputs + (jacobian(model, x) @ (at - weights(model))).reshape(outputs.shape)
    if kind == "regression":
        return torch.eye(outputs.numel(), dtype=outputs.dtype) / noise
    if kind == "binary":
        p = outputs.sigmoid().flatten()
        return torch.diag(p * (1 - p))
    return torch.block_diag(*(torch.diag(p) - torch.outer(p, p) for p in outputs.softmax(1)))


def losses(outputs: Tensor, y: Tensor, kind: str, noise: float = 1.0) -> Tensor:
    if kind == "regression":
        return 0.5 * (outputs - y.reshape(outputs.shape)).square().sum() / noise
    if kind == "binary":
        return nn.functional.binary_cross_entropy_with_logits(
            outputs, y.reshape(outputs.shape).to(outputs), reduction="sum"
        )
    return nn.functional.cross_entropy(outputs, y, reduction="sum")


def mode(model: nn.Module, x: Tensor, y: Tensor, A: Tensor, kind: str, noise: float = 1.0) -> Tensor:
    """The optimum of the affine tangent model's loss, by L-BFGS to the end."""
    J, v, outputs = jacobian(model, x), weights(model), model(x).detach()
    w = v.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([w], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = losses(outputs + (J @ (w - v)).reshape(outputs.shape), y, kind, noise) + 0.5 * w @ A @ w
        value.backward()
        return value

    for _ in range(4):
        optimizer.step(closure)
    return w.detach()
