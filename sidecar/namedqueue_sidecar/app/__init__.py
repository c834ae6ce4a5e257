"""The app beside us: the port to it, and the HTTP client behind the port."""
