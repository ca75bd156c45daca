"""The page: see, search and correct what memory has, in a browser on this machine.

`app` has the routes and checks access, `page` renders views, and each `views_*` module has the
views of one area. `doors/rest/main.py` runs the process.
"""
