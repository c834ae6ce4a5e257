//go:build tools

// Package tools pins the Kubernetes that the test bed runs.
//
// Kubernetes cannot be installed with `go install`: its go.mod points at
// staging folders that exist only in its own repository. This module names the
// published staging modules instead, so the six programs build from the Go
// module proxy alone, and go.sum fixes every byte that goes into them.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
