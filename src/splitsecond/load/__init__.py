"""When requests leave: what they say (`workload`, `calibration`), when they are due (`arrivals`, `plan`), who sends
them (`block` in a `worker` process), and who sees to it all (`conductor`)."""
