"""The explorer: a local page that shows how sums leak, plans a deployment and audits a log.

The page is served on the loopback address by the standard library, and loads nothing from elsewhere. Its answers are
those of the library:

* :mod:`~coterie.explorer.people`: twelve people, each with a picture that is their private vector.
* :mod:`~coterie.explorer.leaks`: rounds by several policies, and what the sums reveal after each of them.
* :mod:`~coterie.explorer.plans`: what a choice of T, cohort and noise costs.
* :mod:`~coterie.explorer.audits`: the verdict on a log that was dropped onto the page.
* :mod:`~coterie.explorer.sessions`: the bytes of one secure aggregation, as the server received them.
* :mod:`~coterie.explorer.requests`: the table of paths, and what each of them takes and returns. Start here.
* :mod:`~coterie.explorer.server`: HTTP. Everything from the page is treated as hostile input, and checked here.
* :mod:`~coterie.explorer.export`: a copy of the page as one file, for what needs no server.

The page itself is written in TypeScript, in the folder ``frontend`` of the repository; ``make explorer`` builds it into
the folder ``static`` here.
"""
