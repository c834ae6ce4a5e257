{{- /* Refuse values that cannot all be meant. Included once, by the Deployment. */ -}}
{{- define "namedqueue.contradictions" -}}
{{- if and .Values.watchNamespaces .Values.watchAllNamespaces -}}
{{- fail "watchNamespaces and watchAllNamespaces are both set; keep the one that you mean" -}}
{{- end -}}
{{- if not (or .Values.watchNamespaces .Values.watchAllNamespaces) -}}
{{- fail "no namespace is served; set watchNamespaces to a list of them, or watchAllNamespaces=true, which lets the operator read every Secret of the cluster" -}}
{{- end -}}
{{- if and .Values.alerts.enabled (not .Values.serviceMonitor.enabled) -}}
{{- fail "alerts.enabled needs serviceMonitor.enabled: without the operator's metrics «operator not ticking» would fire for ever" -}}
{{- end -}}
{{- end -}}
