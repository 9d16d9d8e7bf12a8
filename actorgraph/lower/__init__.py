"""From a graph to what machines run: joint graph, regions, tasks and their program text."""
