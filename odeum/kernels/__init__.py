"""Fast CPU implementations: each file states its plain formula first (`reference`), then the fast version."""
