"""Services made from services. Each policy is one file, a `Service` itself, and knows neither providers nor sockets.

A policy may change its mind until it returns a reply; from then on the stream is the caller's and no policy touches it.
What goes backwards is closing alone.
"""
