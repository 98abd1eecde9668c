"""The paper's figures beside ours, and what it prints."""
