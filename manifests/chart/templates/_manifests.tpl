{{/*
The objects of a file of manifests/, in the release. Takes root and file.
*/}}
{{- define "lockstep.objects" -}}
{{- range splitList "\n---\n" (include "lockstep.file" .) }}
{{- $object := fromYaml . }}
{{- include "lockstep.adopt" (dict "root" $.root "object" $object) }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}

{{/*
A deployment or CronJob of manifests/, with its values and the checksum of its configuration. Takes root, file, component,
args and config.
*/}}
{{- define "lockstep.workload" -}}
{{- $values := index .root.Values .component }}
{{- $object := fromYaml (include "lockstep.file" .) }}
{{- include "lockstep.adopt" (dict "root" .root "object" $object) }}
{{- $spec := $object.spec }}
{{- if eq $object.kind "CronJob" }}
{{- $_ := set $spec "schedule" $values.schedule }}
{{- $spec = $spec.jobTemplate.spec }}
{{- else }}
{{- $_ := set $spec "replicas" $values.replicas }}
{{- end }}
{{- include "lockstep.pod" (merge (dict "template" $spec.template "values" $values) .) }}
---
{{ toYaml $object }}
{{- end }}

{{/*
Writes values into the template of a pod, in place. Takes what lockstep.workload does, and template and values.
*/}}
{{- define "lockstep.pod" -}}
{{- $values := .values }}
{{- $pod := .template.spec }}
{{- $container := first $pod.containers }}
{{- $args := list }}
{{- range concat $container.args .args $values.args }}
{{- $args = append $args (replace "namespace=kube-system" (printf "namespace=%s" $.root.Release.Namespace) .) }}
{{- end }}
{{- $_ := set $container "args" $args }}
{{- $_ := set $container "image" (include "lockstep.image" .) }}
{{- $_ := set $container "imagePullPolicy" .root.Values.images.pullPolicy }}
{{- $_ := set $container "resources" $values.resources }}
{{- $_ := set $pod "priorityClassName" $values.priorityClassName }}
{{- range $field, $value := dict "imagePullSecrets" .root.Values.images.pullSecrets "affinity" $values.affinity "nodeSelector" $values.nodeSelector "tolerations" $values.tolerations }}
{{- if $value }}
{{- $_ := set $pod $field $value }}
{{- end }}
{{- end }}
{{- with $values.extraEnv }}
{{- $_ := set $container "env" . }}
{{- end }}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts $values.extraVolumeMounts) }}
{{- $_ := set $pod "volumes" (concat $pod.volumes $values.extraVolumes) }}
{{- $_ := set $pod "serviceAccountName" (include "lockstep.serviceAccount" (dict "root" .root "name" $pod.serviceAccountName)) }}
{{- $metadata := .template.metadata }}
{{- $_ := set $metadata "labels" (merge $metadata.labels $values.podLabels) }}
{{- $_ := set $metadata "annotations" (merge (dict "checksum/config" (sha256sum .config)) $values.podAnnotations) }}
{{- end }}

{{- define "lockstep.image" -}}
{{- $name := printf "lockstep-%s:%s" .component (default .root.Chart.AppVersion .root.Values.images.tag) }}
{{- with .root.Values.images.registry }}
{{- $name = printf "%s/%s" (trimSuffix "/" .) $name }}
{{- end }}
{{- default $name .values.image }}
{{- end }}

{{/*
The name in the release of a service account of manifests/. Takes root and name.
*/}}
{{- define "lockstep.serviceAccount" -}}
{{- $name := .name }}
{{- with index .root.Values (trimPrefix "lockstep-" .name) }}
{{- $name = default $name .serviceAccount.name }}
{{- end }}
{{- $name }}
{{- end }}

{{/*
Puts an object into the release: its namespace, its labels, and the names and annotations of service accounts, in place. What the
API server has in kube-system stays there. Takes root and object.
*/}}
{{- define "lockstep.adopt" -}}
{{- $metadata := .object.metadata }}
{{- $there := eq (dig "roleRef" "name" "" .object) "extension-apiserver-authentication-reader" }}
{{- if and $metadata.namespace (not $there) }}
{{- $_ := set $metadata "namespace" .root.Release.Namespace }}
{{- end }}
{{- range .object.subjects }}
{{- if eq .kind "ServiceAccount" }}
{{- $_ := set . "namespace" $.root.Release.Namespace }}
{{- $_ := set . "name" (include "lockstep.serviceAccount" (dict "root" $.root "name" .name)) }}
{{- end }}
{{- end }}
{{- if eq .object.kind "ServiceAccount" }}
{{- with (index .root.Values (trimPrefix "lockstep-" $metadata.name)).serviceAccount.annotations }}
{{- $_ := set $metadata "annotations" . }}
{{- end }}
{{- $_ := set $metadata "name" (include "lockstep.serviceAccount" (dict "root" .root "name" $metadata.name)) }}
{{- end }}
{{- $_ := set $metadata "labels" (merge (fromYaml (include "lockstep.labels" .root)) (default dict $metadata.labels)) }}
{{- end }}

{{- define "lockstep.labels" -}}
app.kubernetes.io/part-of: lockstep
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
A file of manifests/, whose absence is an error. Takes root and file.
*/}}
{{- define "lockstep.file" -}}
{{- required (printf "the chart lacks files/%s" .file) (.root.Files.Get (printf "files/%s" .file)) }}
{{- end }}

{{/*
A ConfigMap with one file in it. Takes root, name, key and text.
*/}}
{{- define "lockstep.configMap" -}}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "lockstep.labels" .root | nindent 4 }}
data:
  {{ .key }}: |
    {{- .text | trimSuffix "\n" | nindent 4 }}
{{- end }}
