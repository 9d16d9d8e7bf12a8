"""Schedules of pipelines: who does what in which order, and what it takes.  No graph is needed.

Everything here plans by numbers; `ag.pipeline` has its public names, and runs what is planned.
"""
