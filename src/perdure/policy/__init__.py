"""What the agent may do, when, and how often: pure answers to the loop's questions."""
