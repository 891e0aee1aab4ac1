"""Put small faults into the code, one at a time, and see which the tests find. ``make mutants FILES=…`` starts it."""
