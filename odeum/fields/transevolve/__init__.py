"""TransEvolve (Dutta et al. 2021): attention measured once a block and evolved over depth."""
