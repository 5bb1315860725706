"""Adapters to other libraries, each an optional dependency imported only here: scikit-learn, GPyTorch, BoTorch, RDKit."""
