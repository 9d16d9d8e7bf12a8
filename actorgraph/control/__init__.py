"""Control flow inside graphs: branches and loops as ops whose attributes hold graphs."""
