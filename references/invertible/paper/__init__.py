"""The paper's figures next to ours, and its statements."""
