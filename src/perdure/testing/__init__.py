"""What one tests with: the journal contract, a clock that moves when told, lively sessions, golden sessions.

Nothing here is imported by Perdure itself. `contract` needs pytest and anyio's plugin; the rest needs nothing more.
"""
