"""A whole Kubernetes on this machine, from source, without Docker and without pulling an image.

- `binaries`: Kubernetes, helm and CoreDNS built by Go at pinned versions, once.
- `blueprint`: names, addresses and files of one cluster, decided before anything starts.
- `pki`: its certificate authorities and kubeconfigs.
- `controlplane`: etcd, the API server, controllers and scheduler as processes of this machine.
- `network`, `cgroups`, `node`, `node_init`: nodes, each in namespaces of its own, so that the
  death of one process takes a node with everything on it.
- `images`, `addons`: the few images a cluster needs, and CoreDNS.
- `provider`: all of it in order, behind the same face as kind.
"""
