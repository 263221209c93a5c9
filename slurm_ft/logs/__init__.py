"""One log per job: where its parts lie, which attempt a line belongs to, and what is added while one looks."""
