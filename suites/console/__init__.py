"""What is shown in a terminal and written to files."""
