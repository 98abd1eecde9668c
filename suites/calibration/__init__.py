"""False alarms and the smallest error seen, measured."""
