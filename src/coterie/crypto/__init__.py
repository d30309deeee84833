"""The dangerous layer: bytes in, bytes out, and the only importer of the ``cryptography`` library.

Nothing here knows about clients, rounds or vectors of floats. Every function that derives or protects
something takes a *context* made with :func:`~coterie.crypto.context.bind`, so that a key, ciphertext or
signature made for one purpose, session and pair of parties is useless for any other.
"""
