"""Metrics, calibration and plots."""
