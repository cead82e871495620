"""What became of each commit: recorded beside the loop, and asked for by pipelines that wait for one.

history_file.py   the bounded history in the state directory
recorder.py       follows each tick on a thread of its own
waiting.py        the answer to a pipeline, from the file or over the readers' API
"""
