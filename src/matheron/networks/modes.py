"""The state in which a network is linearized: evaluation, and only operations that have derivatives of both kinds."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


@contextmanager
def linearizing(model: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode, attention by plain mathematics, recurrent layers step by step, nothing compiled.

    Fused attention, fused recurrent layers and compiled code have no forward-mode derivative, and automatic casts to
    half precision none to sum over all weights. On leaving, also by an
    exception, each module has the attributes it came with: its mode, and nothing that a forward pass may have stored.
    """
    attributes = [(module, dict(vars(module))) for module in model.modules()]
    fastpath = torch.backends.mha.get_fastpath_enabled()
    try:
        for module, _ in attributes:
            module.training = False
            if isinstance(module, nn.Embedding):  # what it makes of gradients is for optimizers, and no derivative
                module.sparse, module.scale_grad_by_freq = False, False
        torch.backends.mha.set_fastpath_enabled(False)
        with ExitStack() as stack:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            for kind in {parameter.device.type for parameter in model.parameters()}:
                stack.enter_context(torch.autocast(kind, enabled=False))
            if "torch._dynamo" in sys.modules:  # what has not been loaded has compiled nothing
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            if any(isinstance(module, nn.RNNBase) for module, _ in attributes):
                stack.enter_context(unfused_recurrence())
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        for module, before in attributes:
            vars(module).clear()
            vars(module).update(before)


@contextmanager
def unfused_recurrence() -> Iterator[None]:
    """Recurrent layers without oneDNN and cuDNN, as sums and products that have every derivative."""
    libraries: tuple[Any, ...] = (torch.backends.mkldnn, torch.backends.cudnn)
    before = [library.enabled for library in libraries]
    try:
        for library in libraries:
            library.enabled = False
        yield
    finally:
        for library, enabled in zip(libraries, before, strict=True):
            library.enabled = enabled


def training_modules(model: nn.Module) -> list[str]:
    """Names of the modules in training mode; the model itself is called ``model``."""
    return [name or "model" for name, module in model.named_modules() if module.training]


def versions(model: nn.Module) -> dict[str, tuple[int, int]]:
    """What changes when a parameter or buffer is written to or replaced."""
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: (tensor.data_ptr(), tensor._version) for name, tensor in named}


@contextmanager
def naming_the_module(model: nn.Module) -> Iterator[list[str]]:
    """A list that, when a forward pass inside raises, ends with the innermost module that was running."""
    names = {module: name or "model" for name, module in model.named_modules()}
    running: list[str] = []

    def enter(module: nn.Module, inputs: Any) -> None:
        if module in names:
            running.append(f"{names[module]} ({type(module).__name__})")

    def leave(module: nn.Module, inputs: Any, outputs: Any) -> None:
        if module in names:
            running.pop()

    hooks = (register_module_forward_pre_hook(enter), register_module_forward_hook(leave))
    try:
        with warnings.catch_warnings():
            # A compiled module is entered as itself and as what it was made from, which does no harm here.
            warnings.filterwarnings("ignore", message="Using `torch.compile")
            yield running
    finally:
        for hook in hooks:
            hook.remove()
