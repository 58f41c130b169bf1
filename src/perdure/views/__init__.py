"""Ways of reading a journal: pure functions from events to what somebody wants to know."""
