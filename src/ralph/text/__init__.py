"""Pure text work: words in, words out, no files and no clock.

What reads or writes anything does not belong here.
"""
