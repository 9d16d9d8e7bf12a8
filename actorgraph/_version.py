"""The version, read by the build and by users."""

__all__ = ["__version__"]

__version__ = "0.1.0"
