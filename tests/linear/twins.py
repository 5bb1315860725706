"""Small linear models with everything explicit, and likelihoods that are not Gaussian."""

import itertools
import math

import torch
from torch import Tensor

from matheron.linear import (
    Batch,
    BernoulliCurvature,
    CategoricalCurvature,
    DiagonalPrior,
    GaussianCurvature,
    StoredData,
)
from matheron.operators import Dense

DOUBLE = torch.float64


def normal(*shape, generator):
    return torch.randn(*shape, dtype=DOUBLE, generator=generator)


def of_data(seed):
    """Apart from the seeds of samples: draws from the same one would be the features themselves."""
    return torch.Generator().manual_seed(1000 + seed)


class SoftmaxBatch(Batch):
    """Cross entropy of labels ``(b,)``, with the curvature held where it was linearized."""

    def __init__(self, features, curvature, index, labels):
        super().__init__(features, curvature, index)
        self.labels = labels

    def logits(self, F):
        return F.reshape(len(self.labels), -1, F.shape[1])

    def loss(self, F):
        picked = self.logits(F).log_softmax(1).gather(1, self.labels[:, None, None].expand(-1, 1, F.shape[1]))
        return -picked.sum((0, 1))

    def loss_gradient(self, F):
        p = self.logits(F).softmax(1)
        p[torch.arange(len(self.labels)), self.labels] -= 1.0
        return p.reshape(F.shape)

    def loss_curvature(self, F):
        return CategoricalCurvature(F.reshape(len(self.labels), -1).softmax(1))


class SoftmaxData(StoredData):
    quadratic = False

    def __init__(self, Phi, labels, probabilities, batch_size=None):
        super().__init__(Dense(Phi), CategoricalCurvature(probabilities), None, batch_size)
        self.labels = labels

    def batch(self, features, curvature, index, rows):
        return SoftmaxBatch(features, curvature, index, self.labels[index])


class LogisticBatch(Batch):
    """``log(1 + exp(−yF))`` of labels ``±1``."""

    def loss(self, F):
        return torch.nn.functional.softplus(-self.targets[:, None] * F).sum(0)

    def loss_gradient(self, F):
        return -self.targets[:, None] * torch.sigmoid(-self.targets[:, None] * F)

    def loss_curvature(self, F):
        return BernoulliCurvature(F.sigmoid())


class LogisticData(StoredData):
    quadratic = False

    def batch(self, features, curvature, index, rows):
        return LogisticBatch(features, curvature, index, self.targets[rows])


def gaussian(n=60, d=8, *, seed=0, precision=2.0, batch_size=None, outputs=1, dtype=DOUBLE):
    """Data with noise precision ``precision``, their ``Φ`` and ``Y``."""
    g = of_data(seed)
    Phi = normal(n, d, generator=g).to(dtype)
    Y = (Phi @ normal(d, generator=g).to(dtype)) + normal(n, generator=g).to(dtype) / precision**0.5
    curvature = GaussianCurvature(precision, n, outputs=outputs, dtype=dtype)
    return StoredData(Dense(Phi), curvature, Y, batch_size), Phi, Y


def softmax(n=40, c=3, d=6, *, seed=0, batch_size=None):
    g = of_data(seed)
    Phi = normal(n * c, d, generator=g)
    labels = torch.randint(c, (n,), generator=g)
    p = normal(n, c, generator=g).softmax(1)
    return SoftmaxData(Phi, labels, p, batch_size), Phi, labels, p


def logistic(n=80, d=6, *, seed=0, batch_size=None):
    g = of_data(seed)
    Phi = normal(n, d, generator=g)
    Y = torch.where(Phi @ normal(d, generator=g) + normal(n, generator=g) > 0, 1.0, -1.0).to(DOUBLE)
    p = normal(n, generator=g).sigmoid()
    return LogisticData(Dense(Phi), BernoulliCurvature(p), Y, batch_size), Phi, Y


def prior(a, d, **options):
    return DiagonalPrior(a, num_weights=d, dtype=DOUBLE, **options)


def newton(objective, start, steps=50):
    """The minimizer by plain Newton steps on autograd's Hessian."""
    w = start.clone()
    for _ in range(steps):
        gradient = torch.func.grad(objective)(w)
        w = w - torch.linalg.solve(torch.func.hessian(objective)(w), gradient)
    return w


def filter_covariance(parts, a: Tensor, psi: Tensor) -> Tensor:
    """``a_k⁻¹ exp(−‖p − q‖/ψ_k)`` between the pixels of one filter, one pair of weights at a time."""
    owner = []
    for size, kernel, block in parts:
        pixels = list(itertools.product(*map(range, kernel)))
        start = len(owner)
        owner += [(start + i // len(pixels) * len(pixels), block, pixels[i % len(pixels)]) for i in range(size)]
    C = torch.zeros(len(owner), len(owner), dtype=DOUBLE)
    for i, (one, block, p) in enumerate(owner):
        for j, (other, _, q) in enumerate(owner):
            if one == other:
                C[i, j] = torch.exp(-math.dist(p, q) / psi[block]) / a[block]
    return C
