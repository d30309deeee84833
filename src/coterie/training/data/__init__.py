"""Data sets, readers of common file formats, and partitions of examples among clients.

:func:`~coterie.training.data.datasets.load` reads a data set by name from local files; nothing is downloaded.
:mod:`~coterie.training.data.user_data` accepts the user's torch data sets, loaders, arrays and columns. Both return a
:class:`~coterie.training.data.datasets.Dataset`: start there. :mod:`~coterie.training.data.partitions` divides its
training examples among clients, unless the data already belongs to clients (``client_files``, ``energy``).
"""
