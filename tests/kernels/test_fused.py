"""Compiled tiles agree with the passes they replace."""

import shutil
from functools import partial

import pytest
import torch

from matheron.kernels import RBF, Matern12, Matern32, Matern52, RationalQuadratic, fused
from matheron.operators import KernelOperator

KERNELS = (RBF, Matern12, Matern32, Matern52)
needs_compiler = pytest.mark.skipif(
    not any(shutil.which(c) for c in ("c++", "g++", "clang++")), reason="there is no C++ compiler to compile tiles with"
)


@pytest.mark.parametrize("kind", KERNELS)
def test_the_expression_is_the_correlation(kind):
    kernel = kind()
    squared = torch.linspace(0, 50, 200, dtype=torch.float64)
    torch.testing.assert_close(kernel.fused_correlation(kernel.stretch() * squared), kernel.correlation(squared))


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("kind", KERNELS)
def test_compiled_tiles_agree_with_float64(kind, generator, monkeypatch):
    monkeypatch.setattr(fused, "FROM_ENTRIES", 0)
    X = torch.randn(1600, 3, generator=generator) + 1e3
    X[7] = X[3]
    kernel = kind(lengthscale=torch.tensor([0.2, 1.0, 3.0]), variance=1.7).requires_grad_(False)
    K = KernelOperator(kernel, X, memory=0)
    product = K @ torch.eye(1600)
    assert K.tiles.evaluator.fused is not None
    torch.testing.assert_close(product.double(), kernel(X.double()), rtol=0, atol=1e-5)
    assert product[7, 3] == product[3, 3] == kernel.variance.float()
    assert torch.equal(product[:512, :512], product[:512, :512].mT)


def test_small_far_or_double_work_is_not_compiled(monkeypatch):
    X = torch.randn(600, 2)
    assert RBF().evaluator(X, X).fused is None
    monkeypatch.setattr(fused, "FROM_ENTRIES", 0)
    assert RBF().evaluator(X.double(), X.double()).fused is None
    assert RBF(lengthscale=1e-4).evaluator(X, X).fused is None
    assert RationalQuadratic().evaluator(X, X).fused is None


def test_every_number_of_inputs_is_compiled(monkeypatch):
    seen = []

    def backend(graph, examples):
        seen.append(len(graph.graph.nodes))
        return graph.forward

    monkeypatch.setattr(fused.torch, "compile", partial(torch.compile, backend=backend))
    fused._compiled.cache_clear()
    numbers = range(1, 13)  # PyTorch gives up on one function after eight
    for inputs in numbers:
        assert fused._compiled(RBF.fused_correlation, inputs) is not None
    fused._compiled.cache_clear()
    assert len(seen) == len(set(seen)) == len(numbers)


def test_a_failing_compiler_is_survived(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("no compiler")

    monkeypatch.setattr(fused, "FROM_ENTRIES", 0)
    monkeypatch.setattr(fused.torch, "compile", lambda *args, **kwargs: refuse)
    monkeypatch.setattr(fused.shutil, "which", lambda name: name)
    fused._compiled.cache_clear()
    X, few = torch.randn(1600, 2), torch.zeros(1600)
    few[::400] = 1.0
    with pytest.warns(RuntimeWarning, match=r"without torch\.compile"):
        product = KernelOperator(RBF().requires_grad_(False), X, memory=0) @ few
    fused._compiled.cache_clear()
    torch.testing.assert_close(product, RBF()(X, X[::400]).sum(1).detach())
