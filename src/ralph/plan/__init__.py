"""The plan: features, tasks and disciplines in YAML that people, agents and Ralph all write.

Ralph's own changes go through `Plan.edit`, under a lock and logged; the guard repairs others.
"""
