"""Audit of participation logs: what the sums of past rounds reveal about single clients.

Secure aggregation reveals one sum per round. Combinations of the sums of many rounds may reveal the contribution of a
single client. From the participation matrix alone, the audit computes strong T, weak T and the exposed clients, and
proves every result in exact arithmetic. It works on the log of any federated learning system.

* :mod:`~coterie.auditing.logs` reads logs in many formats; start with ``read_log``.
* :mod:`~coterie.auditing.auditor` computes the findings (:mod:`~coterie.auditing.findings`); start with ``audit``.
* :mod:`~coterie.auditing.exposure`, :mod:`~coterie.auditing.weak`, :mod:`~coterie.auditing.row_space` and
  :mod:`~coterie.auditing.elimination` contain the algorithms.
* :mod:`~coterie.auditing.answers` answers further questions about a log: colluders, a forecast, circles.
* :mod:`~coterie.auditing.verdict`, :mod:`~coterie.auditing.page` and :mod:`~coterie.auditing.figures` present the
  result.
"""
