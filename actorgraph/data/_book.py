"""The text of a book, Lewis Carroll's "Alice's Adventures in Wonderland"; in the public domain."""

from __future__ import annotations


def book() -> str:
    r"""Return the text of "Alice's Adventures in Wonderland", for models of characters.

    148,425 ASCII characters of 70 kinds, with title, headings and short lines.

    References
    ----------
    Lewis Carroll, "Alice's Adventures in Wonderland", London, 1865.

    Examples
    --------
    >>> import actorgraph as ag
    >>> text = ag.data.book()
    >>> start = text.index("Alice was")
    >>> text[start : start + 63]
    'Alice was beginning to get very tired of sitting by her sister\n'
    """
    import lzma
    from importlib import resources

    packed = resources.files("actorgraph.data") / "alice.txt.xz"
    return lzma.decompress(packed.read_bytes()).decode("ascii")
