import torch


class BlockInverse: ...


def nystrom_block(A, s2, test, gen):
    test = torch.linalg.qr(test[:, : max(1, len(A) // 4)])[0] if len(A) < 4 * test.shape[1] else test
    Y = A @ test
    shift = torch.finfo(torch.float64).eps * A.diagonal().sum()
    Y = Y + shift * test
    M = test.T @ Y
    M = (M + M.T) / 2
    C = torch.linalg.cholesky(M)
    B = torch.linalg.solve_triangular(C, Y.T, upper=False).T
    U, S, _ = torch.linalg.svd(B, full_matrices=False)
    lam = (S**2 - shift).clamp_min(0)
    rho = s2.mean() + lam[-1]
    d = 1 / (lam + rho) - 1 / rho

    def P(g):
        return g / rho + U @ (d[:, None] * (U.T @ g))

    x = torch.randn(len(A), 1, dtype=torch.float64, generator=gen)
    for _ in range(10):
        x = x / x.norm()
        x = P(A @ x + s2[:, None] * x)
    L = x.norm()
    Uf = U.float()
    df = (d / L).float()[:, None]
    r = float(1 / rho / L)
    return lambda g: g * r + Uf @ (df * (Uf.T @ g))
