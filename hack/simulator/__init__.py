"""A simulator of queues and their workers, to compare ways of scaling on the same arrivals.

`traces` are the arrivals, `worlds` a queue with its pods in simulated time, `autoscalers` what
decides: the operator's own function, and models of KEDA with the HPA. `pages` writes it all down.
"""
