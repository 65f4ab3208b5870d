"""The public test kit: virtual time, fake services, conformance checks and a real engine."""
