"""Reconstructions that are the output of a network fitted to one scan."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from tqdm import tqdm

from matheron.archive import digest
from matheron.arguments import require_count, require_finite, require_float, require_positive_number, require_same
from matheron.networks import TangentModel
from matheron.networks.modes import linearizing
from matheron.operators.base import Operator
from matheron.seeds import source_of
from matheron.solvers.checkpoint import Checkpoint
from matheron.tomography.cgls import cgls
from matheron.tomography.differences import Differences
from matheron.tomography.measurements import require_operator, require_shape, require_sinogram, require_weights
from matheron.tomography.unet import UNet

SMOOTH = 2e-3
"""Total variation for every ray, in the relative units of the objective, where none is asked for."""

CLIP = 1.0
"""Longest gradient that is followed, in the relative units of the objective."""


class DeepImagePrior:
    """``min_v ½ ‖T g(v) − y‖² / ‖y‖² + tv · ‖D g(v)‖₁ / (n u)``: the image ``g(v)`` is a network's output (§ 7.1.3).

    ``T`` is ``A``, ``D`` the differences of neighbors, ``n`` the number of pixels and ``u`` their ``unit``, else the
    root mean square of one step of least squares; the network's output is multiplied by it, so that neither ``tv`` nor
    the steps depend on the units of the scan. The strength of :func:`total_variation` is ``tv ‖y‖² / (n u)``. Without
    ``tv`` it is ``0.002 n / m`` for ``m`` rays: as strong beside the residual of one ray, whatever their number.

    ``network`` maps ``(1, 1, *shape)`` to the same; without one it is ``UNet()``. Its input is ``input``, an image such
    as a filtered back-projection, flattened or not, or noise. The scan knows the shape of its images; those of an
    operator without one are square unless ``shape`` or ``input`` says otherwise. The network is fitted in place. Any
    weights the network comes with, such as those of :func:`pretrain`, are where it starts.

    >>> import math, torch
    >>> from matheron.tomography import ParallelBeam
    >>> g = torch.Generator().manual_seed(0)
    >>> A = ParallelBeam(16, torch.arange(12) * math.pi / 12, 25).operator()
    >>> truth = torch.zeros(16, 16)
    >>> truth[4:10, 5:12] = 1.0
    >>> dip = DeepImagePrior(A, network=UNet(channels=8, generator=g))
    >>> dip = dip.fit(A @ truth.flatten(), steps=200, generator=g)
    >>> dip.image.shape, bool((dip.image - truth).norm() < 0.3 * truth.norm())
    (torch.Size([16, 16]), True)
    """

    def __init__(
        self,
        A: Operator,
        network: nn.Module | None = None,
        *,
        tv: float | None = None,
        input: Tensor | None = None,
        shape: int | Sequence[int] | None = None,
        unit: float | None = None,
    ) -> None:
        self.given_unit = None if unit is None else require_positive_number("unit", unit)
        self.A = require_operator(A)
        self.tv = SMOOTH * A.shape[1] / A.shape[0] if tv is None else require_positive_number("tv", tv, zero=True)
        self.shape = require_shape(A, shape, input, getattr(network, "dims", None))
        if network is None:
            network = UNet(dims=3 if len(self.shape) == 3 else 2).to(dtype=A.dtype, device=A.device)
        self.network = network
        self.input = None if input is None else _require_input(input, A, self.shape)
        require_network(self.network, A)
        self.unit = self.given_unit or 1.0
        """``u``, in which the network counts pixels."""
        self.history: list[dict[str, float]] = []
        """``loss``, ``fit`` and ``variation`` before every step, the last after all."""
        self.weights: Float[Tensor, " m"] | None = None
        """Precisions of the rays that the network was fitted with, up to one factor."""
        self._image: Tensor | None = None
        self._again: dict[str, Any] = {}

    @torch.enable_grad()
    def fit(
        self,
        y: Float[Tensor, " m"],
        *,
        weights: Float[Tensor, " m"] | None = None,
        steps: int = 2000,
        learning_rate: float = 3e-3,
        generator: torch.Generator | int | None = None,
        progress: bool = False,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> DeepImagePrior:
        """``steps`` of Adam with gradients of at most unit length; the iterate of the smallest loss is kept.

        ``weights`` are the precisions of the rays up to one factor, such as those of :func:`from_counts`: ``‖·‖²`` is
        then ``‖·‖²_W``, of the residual as of ``y``.

        With a ``checkpoint``, a network of the same weights and a ``generator`` of the same seed, an interrupted fit
        goes on from where it was last written, to the same result.
        """
        require_count("steps", steps)
        require_positive_number("learning_rate", learning_rate)
        self._again = {"steps": steps, "learning_rate": learning_rate}
        y, root = require_sinogram(y, self.A), require_weights(weights, self.A)[:, 0].detach().sqrt()
        with torch.no_grad():
            found = float(cgls(self.A, y, iterations=1, weights=weights).image.square().mean().sqrt())
        if not found > 0.0:
            raise ValueError("y says nothing of the image, as Aᵀy is zero; check that it belongs to this operator")
        self.unit = self.given_unit or found
        if self.input is None:
            noise = torch.rand((1, 1, *self.shape), dtype=self.A.dtype, generator=source_of(generator))
            self.input = (0.1 * noise).to(self.A.device)
        self.network.eval()
        require_output(self.network, self.input)
        descent, place = _Descent(self.network, learning_rate), Checkpoint.of(checkpoint)
        identity = self._identity(y, root, learning_rate) if place else {}
        if place is not None:
            descent.load(place, identity)
        D = Differences(self.shape, dtype=self.A.dtype, device=self.A.device)
        pixels, size = math.prod(self.shape), float((root * y).square().sum())
        for step in tqdm(range(len(descent.history), steps + 1), disable=not progress, unit="step", desc="DIP"):
            if place is not None and place.due:
                descent.save(place, identity)
            image = self.output(self.network, self.input).flatten()
            fit = 0.5 * (root * (self.A @ image - y)).square().sum() / size
            variation = (D @ image).abs().sum() / (pixels * self.unit)
            descent.advance(fit, variation, self.tv, last=step == steps)
        self.history, self.weights = descent.finish(), None if weights is None else weights.detach()
        with torch.no_grad():
            self._image = self.output(self.network, self.input).reshape(self.shape)
        if place is not None:
            place.remove()
        return self

    def refitted(
        self,
        A: Operator,
        y: Float[Tensor, " m"],
        *,
        weights: Float[Tensor, " m"] | None = None,
        generator: torch.Generator | int | None = None,
    ) -> DeepImagePrior:
        """A copy, fitted to other measurements of the same image from where this one stands, in as many steps.

        Total variation stays as strong beside the residual of one ray.
        """
        _ = self.image
        tv = self.tv * self.A.shape[0] / A.shape[0]
        options: dict[str, Any] = {"tv": tv, "input": self.input, "shape": self.shape, "unit": self.given_unit}
        other = DeepImagePrior(A, copy.deepcopy(self.network), **options)
        return other.fit(y, weights=weights, generator=generator, **self._again)

    @property
    def image(self) -> Float[Tensor, "*shape"]:
        """``g(ṽ)``, the reconstruction."""
        if self._image is None:
            raise RuntimeError("this deep image prior has not been fitted; call fit(y) first")
        return self._image

    @property
    def brightest(self) -> float:
        """The largest size of a pixel of the reconstruction, or its unit where all are zero."""
        return float(self.image.abs().max()) or self.unit

    def output(self, network: nn.Module, z: Float[Tensor, "1 1 *shape"]) -> Float[Tensor, "1 *shape"]:
        """``g``: the network's output in the units of the image, one channel."""
        return self.unit * network(z)[:, 0]

    @torch.no_grad()
    def tangent(self) -> TangentModel:
        """``φ = ∂_v g(ṽ)`` by its products, at the fitted weights."""
        image = self.image.flatten()
        assert self.input is not None
        with linearizing(self.network):
            moved = (self.output(self.network, self.input).flatten() - image).norm()
        # Rounding alone may differ from pass to pass.
        if not moved <= math.sqrt(torch.finfo(image.dtype).eps) * max(float(image.norm()), self.unit):
            raise RuntimeError(
                "network does not give the fitted image any more, as its weights were changed after the fit; fit "
                "again, and give every other model a copy of its own, copy.deepcopy(network)"
            )
        return TangentModel(self.network, forward=self.output)

    def _identity(self, y: Tensor, root: Tensor, learning_rate: float) -> dict[str, Any]:
        assert self.input is not None
        weights = torch.cat([p.detach().flatten() for p in self.network.parameters()])
        return {
            "pixels": math.prod(self.shape),
            "tv": self.tv,
            "learning rate": learning_rate,
            "y": digest(y),
            # What y says of the image: the same y belongs to another one under another geometry.
            "scan": digest(self.A.T @ y),
            "weights of rays": digest(root),
            "input (draw it from the same seed)": digest(self.input),
            "first weights (draw them from the same seed)": digest(weights),
        }


class _Descent:
    """Adam, with the best iterate so far, in a form that can be written and read."""

    moments = ("exp_avg", "exp_avg_sq")

    def __init__(self, network: nn.Module, learning_rate: float) -> None:
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.adam = torch.optim.Adam(self.parameters, lr=learning_rate)
        self.best = [p.detach().clone() for p in self.parameters]
        self.least = math.inf
        self.history: list[tuple[float, float, float]] = []

    def advance(self, fit: Tensor, variation: Tensor, tv: float, *, last: bool) -> None:
        """Record where the network is, keep it if it is the best, and step on unless it is the last."""
        loss = fit + tv * variation
        value = float(loss.detach())
        self.history.append((value, float(fit.detach()), float(variation.detach())))
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the loss became {value} at step {len(self.history) - 1}; take a smaller learning_rate"
            )
        if value < self.least:
            self.least = value
            self.best = [p.detach().clone() for p in self.parameters]
        if not last:
            self.adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, CLIP)
            self.adam.step()

    @torch.no_grad()
    def finish(self) -> list[dict[str, float]]:
        """Put the best weights into the network."""
        for parameter, best in zip(self.parameters, self.best, strict=True):
            parameter.copy_(best)
            parameter.grad = None
        return [{"loss": loss, "fit": fit, "variation": variation} for loss, fit, variation in self.history]

    def save(self, place: Checkpoint, identity: dict[str, Any]) -> None:
        """Write what the next step needs."""
        if not self.history:  # nothing has been done yet that would have to be done again
            return
        tensors = {"history": torch.tensor(self.history, dtype=torch.float64)}
        for i, (parameter, best) in enumerate(zip(self.parameters, self.best, strict=True)):
            tensors |= {f"{i}.now": parameter.detach().clone(), f"{i}.best": best}
            # A parameter that the network does not use has no gradient, and no state.
            tensors |= {f"{i}.{name}": value for name, value in self.adam.state[parameter].items()}
        place.save(tensors, {"identity": identity, "least": self.least})

    @torch.no_grad()
    def load(self, place: Checkpoint, identity: dict[str, Any]) -> None:
        """Go on from what was written of the same problem, if anything was."""
        found = place.load(identity)
        if found is None:
            return
        tensors, header = found
        self.least = header["least"]
        self.history = [(loss, fit, variation) for loss, fit, variation in tensors["history"].tolist()]
        for i, parameter in enumerate(self.parameters):
            parameter.copy_(tensors[f"{i}.now"])
            self.best[i].copy_(tensors[f"{i}.best"])
            if f"{i}.step" in tensors:
                moments = {name: tensors[f"{i}.{name}"].to(parameter.device) for name in self.moments}
                self.adam.state[parameter] = {"step": tensors[f"{i}.step"], **moments}


def _require_input(input: Tensor, A: Operator, shape: tuple[int, ...]) -> Float[Tensor, "1 1 *shape"]:
    input = require_finite("input", require_float("input", input))
    require_same("input", input, "the operator", A)
    flat = tuple(input.shape) == (math.prod(shape),)
    if not flat and (input.numel() != math.prod(shape) or tuple(input.shape[-len(shape) :]) != shape):
        raise ValueError(f"input has shape {tuple(input.shape)}; give an image {shape}, or one flattened")
    return input.detach().reshape(1, 1, *shape)


def require_network(network: Any, A: Operator) -> None:
    """Refuse what is no network with something to fit in the operator's precision, alike in training and evaluation."""
    if not isinstance(network, nn.Module):
        raise TypeError(f"network must be a torch.nn.Module such as UNet(), got {type(network).__name__}")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("network has no parameter that requires a gradient, so that there is nothing to fit")
    for name, parameter in network.named_parameters():
        require_same(f"network's {name}", parameter, "the operator", A)
    for name, module in network.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm | nn.modules.dropout._DropoutNd):
            raise ValueError(
                f"network's {name} is {type(module).__name__}, which does one thing while it is fitted and another "
                "when it is linearized; take group norm, as UNet has"
            )


def require_output(network: nn.Module, z: Float[Tensor, "1 1 *shape"]) -> None:
    """Refuse a network that does not turn an image into one image of its size, which its weights move."""
    sizes = ", ".join(map(str, z.shape))
    try:
        with torch.enable_grad():
            found = network(z)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"network does not take an input ({sizes}): {error}") from error
    if not isinstance(found, Tensor):
        raise TypeError(f"network gives a {type(found).__name__}; its output must be one tensor, ({sizes})")
    if found.shape != z.shape:
        raise ValueError(
            f"network maps ({sizes}) to {tuple(found.shape)}; its output must be one image of the size of its input, "
            "such as that of UNet"
        )
    require_same("network's output", found, "its input", z)
    if not bool(found.isfinite().all()):
        raise ValueError("network gives NaN or infinite outputs before any step; draw its weights anew")
    if not found.requires_grad:
        raise ValueError(
            "network's output has no gradient, so that no weight would move; leave out detach and no_grad in it, and "
            "fit it outside of inference_mode"
        )
