{{- /* What the operator may do in a namespace that it serves: what its work needs, no wildcard, no exec. */ -}}
{{- define "namedqueue.permissions.served" -}}
- apiGroups: [namedqueue.io]
  resources: [namedqueues]
  verbs: [get, list, watch, patch]
- apiGroups: [namedqueue.io]
  resources: [queueredrives]
  verbs: [get, list, watch]
- apiGroups: [namedqueue.io]
  resources: [namedqueues/status, queueredrives/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [get, list, create, patch]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, create, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{- /* In its own namespace: the Lease, and the webhook's certificates. */ -}}
{{- define "namedqueue.permissions.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "namedqueue.fullname" . }}]
  verbs: [get, update]
{{- if .Values.webhook.enabled }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "namedqueue.fullname" . }}-webhook]
  verbs: [get, update]
{{- end }}
{{- end -}}

{{- /* Of the cluster: which namespaces and kinds there are, and whom the API server trusts. */ -}}
{{- define "namedqueue.permissions.everywhere" -}}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list, watch]
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- if .Values.webhook.enabled }}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations]
  resourceNames: [{{ include "namedqueue.fullname" . }}]
  verbs: [get, patch]
{{- end }}
{{- end -}}
