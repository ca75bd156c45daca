"""The plan: features, tasks and disciplines in YAML that people, agents and Ralph all write.

Every change goes through `Plan.edit`, under a lock and into a log; the guard repairs the rest.
"""
