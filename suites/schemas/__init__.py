"""What gradgate reads and writes, as types: `documents` has the JSON documents, `checking` compares data with a type.

``gradgate schema NAME`` prints the JSON schema of a type. The files ``*.json`` of this folder hold the same, so that a
change of a document is seen in a diff. Fields are added and never renamed; a field that is not known is ignored.
"""
