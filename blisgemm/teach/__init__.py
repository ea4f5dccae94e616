"""The open box: what the library does, made visible on its own code.

Knows: the names of its modules. Does not know: anything else. Called by ``cli``, notebooks and people. Nothing below
imports it, so a program that only multiplies matrices never loads it.
"""
