{{/* The name of all objects of a release. */}}
{{- define "splitsecond.name" -}}
{{- if contains "splitsecond" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-splitsecond{{ end }}
{{- end }}

{{- define "splitsecond.selector" -}}
app.kubernetes.io/name: splitsecond
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "splitsecond.labels" -}}
{{ include "splitsecond.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* splitsecond.yaml, with what the chart decides. */}}
{{- define "splitsecond.config" -}}
{{- $listen := dict "host" "0.0.0.0" "port" 8800 "workers" .Values.workers "drain_s" .Values.drainSeconds }}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) (dict "listen" $listen)) }}
{{- end }}
