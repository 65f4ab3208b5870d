"""`/dashboard`: a page that shows the running gateway and needs no other server."""
