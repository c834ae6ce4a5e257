{{- define "namedqueue.fullname" -}}
{{- if contains "namedqueue" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-namedqueue" (.Release.Name | trunc 39 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "namedqueue.selector" -}}
app.kubernetes.io/name: namedqueue
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "namedqueue.labels" -}}
app.kubernetes.io/name: namedqueue
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The name of an image, by tag or by digest. Takes (image, chart, path of the value). */ -}}
{{- define "namedqueue.image" -}}
{{- $image := index . 0 -}}
{{- $chart := index . 1 -}}
{{- if and $image.tag $image.digest -}}
{{- fail (printf "%s has both a tag and a digest; leave one of them empty" (index . 2)) -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default $chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* What Pod Security `restricted` asks of a container, and a root that nobody writes to. */ -}}
{{- define "namedqueue.security" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end -}}
