"""Problems for a claim, tried until one fails and made smaller: begin with ``search.py``, or ``quick.py`` for calls."""
