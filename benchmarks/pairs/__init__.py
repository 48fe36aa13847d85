"""Each contender on each broker as a worker and a publisher, set up as its documentation says.

The modules import their libraries and nothing of ours but `benchmarks.sent`, because the time of
starting is measured through them.
"""
