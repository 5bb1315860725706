"""Small networks of every kind, a batch for each, and their explicit Jacobians by plain reverse mode."""

from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class Residual(nn.Module):
    """In-place ReLUs on both sides of the sum."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 3, 3, padding=1)
        self.body = nn.Sequential(
            nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        )
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.body(x)
        return self.head(self.relu(x).mean((2, 3)))


class UNet(nn.Module):
    """Down, up, and a bridge between; images in and images out."""

    def __init__(self):
        super().__init__()
        self.inward = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.LeakyReLU(0.2))
        self.down = nn.Sequential(nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.LeakyReLU(0.2))
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.outward = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        x = self.inward(x)
        return torch.sigmoid(self.outward(torch.cat([x, self.up(self.down(x))], dim=1)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=6, dropout=0.3, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(2, 3, num_layers=2, batch_first=True)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.recurrent(x)[0][:, -1])


class Tied(nn.Module):
    """One matrix in two places."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(3, 3)
        self.decode = nn.Linear(3, 3)
        self.decode.weight = self.encode.weight

    def forward(self, x):
        return self.decode(torch.tanh(self.encode(x)))


class Language(nn.Module):
    """Called with keywords, returns an object with logits."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, input_ids, attention_mask=None, labels=None):
        hidden = self.embedding(input_ids)
        hidden = (hidden * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
        logits = self.head(torch.tanh(hidden))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return SimpleNamespace(logits=logits, loss=loss)


class WholeDict(nn.Module):
    """Takes a mapping as its one argument."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, batch):
        return torch.tanh(self.head(batch["a"] * batch["b"]))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(4, 3)

    def forward(self, a, b):
        return self.left(a) * torch.tanh(self.right(b))


@dataclass(frozen=True)
class Architecture:
    model: Callable[[], nn.Module]
    batch: Callable[[torch.dtype], Any]


def normal(*shape: int, seed: int = 1) -> Callable[[torch.dtype], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return lambda dtype: values.to(dtype)


def tokens(dtype: torch.dtype) -> dict[str, Tensor]:
    ids = torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": (ids > 0).to(dtype), "labels": torch.tensor([0, 1, 2])}


ARCHITECTURES = {
    "mlp with layer norm": Architecture(
        lambda: nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 2)),
        normal(4, 3),
    ),
    "cnn with batch norm": Architecture(
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 2)
        ),
        normal(3, 2, 6, 6),
    ),
    "residual with in-place relu": Architecture(Residual, normal(3, 2, 5, 5)),
    "transformer": Architecture(Transformer, normal(3, 4, 4)),
    "u-net with group norm": Architecture(UNet, normal(1, 1, 4, 4)),
    "lstm": Architecture(Recurrent, normal(3, 4, 2)),
    "tied weights": Architecture(Tied, normal(4, 3)),
    "keywords and logits": Architecture(Language, tokens),
    "user dict": Architecture(Language, lambda dtype: UserDict(tokens(dtype))),
    "whole dict": Architecture(WholeDict, lambda dtype: {"a": normal(4, 3)(dtype), "b": normal(4, 3, seed=2)(dtype)}),
    "list": Architecture(TwoInputs, lambda dtype: [normal(4, 2)(dtype), normal(4, 4, seed=2)(dtype)]),
    "tuple": Architecture(TwoInputs, lambda dtype: (normal(4, 2)(dtype), normal(4, 4, seed=2)(dtype))),
}


def build(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Any]:
    """A network in evaluation mode as if it had been trained: no statistic and no scale at its starting value."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ARCHITECTURES[name].model().to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
            for buffer in model.buffers():
                if buffer.dtype.is_floating_point:
                    buffer += 0.3 * torch.rand_like(buffer)
    return model.eval(), ARCHITECTURES[name].batch(dtype)


def outputs_of(model: nn.Module, x: Any) -> Tensor:
    if isinstance(model, Language):
        return model(**x).logits
    return model(*x) if isinstance(x, (list, tuple)) else model(x)


def explicit_jacobian(model: nn.Module, x: Any) -> tuple[Tensor, Tensor]:
    """Outputs ``(batch, *out)`` and every ``∂g_i/∂v``, ``(batch · c, d)``, one gradient at a time."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    with sdpa_kernel(SDPBackend.MATH):
        outputs = outputs_of(model, x)
    rows = []
    for output in outputs.flatten():
        gradients = torch.autograd.grad(output, parameters, retain_graph=True, allow_unused=True)
        rows.append(
            torch.cat(
                [
                    torch.zeros(p.numel(), dtype=output.dtype) if g is None else g.flatten()
                    for p, g in zip(parameters, gradients, strict=True)
                ]
            )
        )
    return outputs.detach(), torch.stack(rows)
