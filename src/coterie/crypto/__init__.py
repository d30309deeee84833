"""Cryptographic primitives: bytes in, bytes out. Only this package imports the ``cryptography`` library.

Keys are agreed with X25519 (:mod:`~coterie.crypto.agreement`), messages between clients are encrypted with AES-GCM
(:mod:`~coterie.crypto.sealing`), masks are expanded with AES-CTR (:mod:`~coterie.crypto.keystream`), secrets are shared
with Shamir's scheme (:mod:`~coterie.crypto.shamir`), and identities sign with Ed25519 (:mod:`~coterie.crypto.signing`).

Nothing here depends on clients, rounds or vectors of floats. Every function that derives or protects something takes a
*context* made with :func:`~coterie.crypto.context.bind`: start there. A key, ciphertext or signature made for one
purpose, session and pair of parties is therefore useless for any other.
"""
