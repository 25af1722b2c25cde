"""What a node does, held against what a node file and the ledger assume: ``tools/node.py``.

A check measures one thing on the node that it runs on, hardware or not, and gives findings: assumed, measured, verdict.
"""
