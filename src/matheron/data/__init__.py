"""Loaders for the data sets the experiments use."""
