"""The folder of a run: its files, how they are written, and the lock that one process holds on it.

The class is :class:`~coterie.runs.storage.folder.RunFolder`. The record of a round and a checkpoint are on disk before
the next round begins, so a run that was killed continues after its last round. Whether the files of a folder belong
together is checked elsewhere, in :mod:`coterie.runs.engine.history`.
"""
