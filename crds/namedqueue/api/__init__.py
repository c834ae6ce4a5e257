"""The Kubernetes API `namedqueue.io/v1alpha1`: models, rules, and the CRDs made of them."""

GROUP = "namedqueue.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
