"""The page: see, search and correct what memory has, in a browser on this machine.

`main` is the process, `app` the routes and who may ask, `page` how a view is rendered; each
`views_*` module has the views of one area.
"""
