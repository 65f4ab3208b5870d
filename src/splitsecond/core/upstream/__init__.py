"""One request to one target: address and key, request, response, observation."""
