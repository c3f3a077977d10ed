"""The words of Odeum: small frozen dataclasses that say what to build and how to train it.

Nothing here imports torch, so the command line can show its options at once.
"""
