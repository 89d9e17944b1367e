"""What each idea of a training is worth: the same tasks, seeds and budget with it and without, compared with intervals.

`plan.make_plan` says what is run, `running.run_all` runs it in parallel processes and goes on where it was killed, and
`report.write_report` tells what came of it.
"""
