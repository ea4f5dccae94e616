"""The version: the one place that states it (pyproject.toml and the package read it from here)."""

__version__ = "0.1.0"
