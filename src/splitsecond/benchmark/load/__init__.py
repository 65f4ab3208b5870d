"""Load generation: how long prompts are (`calibration`), when they leave (`arrivals`,
`plan`), and the processes that send them (`block` in a `worker` process, started and fed by the
`coordinator`)."""
