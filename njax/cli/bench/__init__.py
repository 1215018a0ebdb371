"""`njax bench`: one measurement a file; `report` prints all of them the same way."""
