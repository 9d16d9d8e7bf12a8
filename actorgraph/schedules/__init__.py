"""Schedules of pipelines: the actions of each device in order, and the time they take.

Everything here plans with numbers and needs no graph; `ag.pipeline` has the public names, and runs
the plans.
"""
