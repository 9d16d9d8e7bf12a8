"""Planned memory: which steps write into memory that is kept, where, and when it is free again."""
