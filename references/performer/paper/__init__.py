"""The paper's figures next to ours, and what it prints."""
