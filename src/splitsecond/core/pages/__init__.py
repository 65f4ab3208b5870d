"""HTML pages and plots, without any finding."""
