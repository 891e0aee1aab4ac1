{{- define "moorage.selector" -}}
app.kubernetes.io/name: moorage
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "moorage.labels" -}}
{{ include "moorage.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- define "moorage.account" -}}
- kind: ServiceAccount
  name: {{ .Release.Name | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{- define "moorage.image" -}}
{{- $repository := required "image.repository must name the image that you built from the Containerfile" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "moorage.configuration" -}}
{{- $election := dict "leaderElect" true "resourceNamespace" .Release.Namespace "resourceName" .Release.Name }}
{{- $base := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" "leaderElection" $election }}
{{- $_ := set $base "profiles" (list (dict "schedulerName" .Values.schedulerName)) }}
{{- mergeOverwrite $base (deepCopy .Values.configuration) | toYaml }}
{{- end }}
