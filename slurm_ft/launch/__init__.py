"""The job's side, once per attempt on the batch host: everything between the choice of a checkpoint and the training.

`start` becomes the training's own process, so signals and exit code are its own. `follow` runs beside it until it is
known whether the training really went on.
"""
