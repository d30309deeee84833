"""Tables of confined descent beside what it is compared with, and what an observer of its sums has."""
