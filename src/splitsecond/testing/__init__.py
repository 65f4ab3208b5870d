"""The public test kit: virtual time, fake services, conformance checks, difficult streams and a real engine."""
