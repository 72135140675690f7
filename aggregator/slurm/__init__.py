"""What is special about jobs of Slurm: their logs, their epilog, their ids."""
