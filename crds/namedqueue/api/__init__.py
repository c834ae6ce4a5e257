"""The Kubernetes API `namedqueue.io/v1alpha1`: the models, their rules, and the CRDs made of them."""

GROUP = "namedqueue.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
