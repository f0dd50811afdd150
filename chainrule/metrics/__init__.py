"""How good an answer is, by the measures of each task, each by the library that its field uses."""
