{{- define "redlock.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- /* Labels always have the chart's name, because `redlock doctor` and NetworkPolicies find the pods by it. */}}
{{- define "redlock.name" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $full | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "redlock.serviceAccount" -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false: name the service account that exists in serviceAccount.name" -}}
{{- end -}}
{{- .Values.serviceAccount.name | default (include "redlock.name" .) -}}
{{- end -}}

{{- define "redlock.defaultQuorumNamespace" -}}
{{- .Values.defaultQuorum.namespace | default (include "redlock.namespace" .) -}}
{{- end -}}

{{- define "redlock.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "redlock.labels" -}}
{{ include "redlock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: {{ .Chart.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The map .over with the entries of .base that it does not have, so that no key is rendered twice. */}}
{{- define "redlock.merged" -}}
{{- toYaml (merge (dict) (.over | default dict) .base) -}}
{{- end -}}

{{- /* The labels of the pods of hooks and tests, without those of the operator's objects. .name is their name. */}}
{{- define "redlock.hookPodLabels" -}}
{{- $own := dict "app.kubernetes.io/name" .name "app.kubernetes.io/instance" .context.Release.Name -}}
{{- include "redlock.merged" (dict "over" .context.Values.podLabels "base" (merge $own .context.Values.commonLabels)) -}}
{{- end -}}

{{- /* The reference of an image: .image is a map as in the values. .tag is the default tag. A configured registry replaces the registry of
the repository, which is a first part with a dot or a colon, or localhost. */}}
{{- define "redlock.reference" -}}
{{- $repository := .image.repository -}}
{{- with .image.registry | default (.root.Values.global | default dict).imageRegistry -}}
{{- $parts := splitList "/" $repository -}}
{{- $first := first $parts -}}
{{- if and (rest $parts) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) -}}
{{- $parts = rest $parts -}}
{{- end -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (join "/" $parts) -}}
{{- end -}}
{{- $repository -}}
{{- with .image.tag | default .tag }}:{{ . }}{{ end -}}
{{- with .image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "redlock.image" -}}
{{- include "redlock.reference" (dict "root" . "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{- /* The specification of the default quorum: defaults, which the values override. */}}
{{- define "redlock.defaultQuorum" -}}
{{- $image := include "redlock.reference" (dict "root" . "image" .Values.redis.image "tag" "") -}}
{{- $spec := dict "image" $image "allowedNamespaces" (dict "from" "All") -}}
{{- if and .Values.imagePullSecrets (eq (include "redlock.defaultQuorumNamespace" .) (include "redlock.namespace" .)) -}}
{{- $spec = set $spec "pod" (dict "imagePullSecrets" .Values.imagePullSecrets) -}}
{{- end -}}
{{- $spec = mergeOverwrite $spec (.Values.defaultQuorum.spec | default dict | deepCopy) -}}
{{- $members := kindIs "invalid" $spec.members | ternary 3 $spec.members -}}
{{- if not (has (add $members (len ($spec.external | default list)) | int) (list 1 3 5 7 9)) -}}
{{- fail "defaultQuorum.spec: members and external must be an odd number together, so that a majority is clear: set 1, 3, 5, 7 or 9 in total" -}}
{{- end -}}
{{- $spec | toJson -}}
{{- end -}}

{{- define "redlock.testNamespace" -}}
{{- .Values.test.namespace | default (first .Values.watchNamespaces) | default (include "redlock.namespace" .) -}}
{{- end -}}

{{- /* The namespaces of quorums, by default the release's own. An empty list means all namespaces. */}}
{{- define "redlock.quorumNamespaces" -}}
{{- if not (has "*" .Values.quorumNamespaces) -}}
{{- .Values.quorumNamespaces | default (list (include "redlock.namespace" .)) | toJson -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{- /* The name and the namespaces of this installation, which separate it from other installations. */}}
{{- define "redlock.placeEnv" -}}
{{- with .Values.installation }}
- name: REDLOCK_INSTALLATION
  value: {{ . | quote }}
{{- end }}
{{- range $name, $namespaces := dict "WATCH" .Values.watchNamespaces "QUORUM" (include "redlock.quorumNamespaces" . | fromJsonArray) "CLIENT" .Values.clientNamespaces "LEAVE_OUT" .Values.leaveOutNamespaces }}
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

{{- /* A failed Job stays, because its log names the held locks. */}}
{{- define "redlock.hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /* The operator serves no lock with a Lease elsewhere. So the operator of another installation can write the Leases there. */}}
{{- define "redlock.gatedNamespaces" -}}
{{- $leftOut := concat .Values.leaseGate.leaveOutNamespaces .Values.leaveOutNamespaces | uniq }}
{{- if or $leftOut .Values.watchNamespaces -}}
namespaceSelector:
  matchExpressions:
  {{- with $leftOut }}
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ toJson . }}}
  {{- end }}
  {{- with .Values.watchNamespaces }}
  - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
  {{- end }}
{{- end }}
{{- end -}}
