"""The daemon's HTTP listeners: for pushes, and for metrics and health. The server is imported only when the Instance has one of
them, because it needs the extra `serve`.
"""
