"""Adapters to other libraries, optional dependencies imported only here: scikit-learn, GPyTorch, BoTorch, RDKit."""
