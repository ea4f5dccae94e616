"""The microkernels: what they are, which there are, how they are generated and called."""
