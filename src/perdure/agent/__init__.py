"""The loop: `decide` says what comes next, `carry_out` does it, `run` goes from one to the other until it may rest."""
