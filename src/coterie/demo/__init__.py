"""A demonstration of one secure aggregation, in which every result is checked.

Each client's private vector is an artificial fingerprint, because a picture is easy to recognise. Clients drop out in
every step. Start with :mod:`coterie.demo.session`. It runs the real protocol (:mod:`coterie.secagg`) in this process
and compares the sum and the mean with those computed in the clear.
:mod:`coterie.demo.report` has the results, and :mod:`coterie.demo.picture` draws them. The command ``coterie demo``
prints the report.
"""
