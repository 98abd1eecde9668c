"""The pages of the guide, and the script that draws a picture for one of them."""
