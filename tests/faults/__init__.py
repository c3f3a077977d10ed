"""What happens to runs when things go wrong, tried: `script/faults`."""
