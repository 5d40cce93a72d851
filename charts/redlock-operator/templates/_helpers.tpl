{{- define "redlock.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "redlock.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "redlock.name" .) -}}
{{- end -}}

{{- define "redlock.defaultQuorumNamespace" -}}
{{- .Values.defaultQuorum.namespace | default .Release.Namespace -}}
{{- end -}}

{{- define "redlock.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "redlock.labels" -}}
{{ include "redlock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: {{ .Chart.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "redlock.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "redlock.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "redlock.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* what the operator is told about its place among others */}}
{{- define "redlock.placeEnv" -}}
- name: REDLOCK_LEASE
  value: {{ .Values.leaseName | quote }}
{{- range $name, $namespaces := dict "WATCH" .Values.watchNamespaces "QUORUM" .Values.quorumNamespaces "LEAVE_OUT" .Values.leaveOutNamespaces }}
{{- if $namespaces }}
- name: REDLOCK_{{ $name }}_NAMESPACES
  value: {{ join "," $namespaces | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "redlock.downwardEnv" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: REDLOCK_LOG
  value: {{ .Values.log.level | quote }}
- name: REDLOCK_LOG_FORMAT
  value: {{ .Values.log.format | quote }}
{{- end -}}

{{- /* what failed stays, so that the Job's log says which locks are held */}}
{{- define "redlock.hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
