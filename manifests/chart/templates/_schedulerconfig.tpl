{{/*
The KubeSchedulerConfiguration: scheduler.config as it is, or that of the mode, with FairShare, the arguments of the
values and the nodes of the pools in each profile. Beside the default scheduler the lease is in the namespace of the release.
*/}}
{{- define "lockstep.schedulerConfig" -}}
{{- $values := .Values.scheduler }}
{{- if $values.config }}
{{- if and .Values.pools (not (contains "addedAffinity:" $values.config)) }}
{{- fail "pools: scheduler.config is the whole configuration: put the label of the pools' nodes in it, as addedAffinity of NodeAffinity, in every profile" }}
{{- end }}
{{- if or $values.fairShare.enabled $values.pluginArgs }}
{{- fail "scheduler.config is the whole configuration: put FairShare and the arguments of plugins in it, and leave out scheduler.fairShare and scheduler.pluginArgs" }}
{{- end }}
{{- $values.config }}
{{- else }}
{{- $text := include "lockstep.file" (dict "root" . "file" (printf "config/%s-default-scheduler.yaml" (ternary "instead-of" "beside" (eq $values.mode "Instead")))) }}
{{- if ne $values.mode "Instead" }}
{{- $text = replace "resourceNamespace: kube-system" (printf "resourceNamespace: %s" .Release.Namespace) $text }}
{{- end }}
{{- $pluginArgs := $values.pluginArgs }}
{{- if and (hasKey $pluginArgs "FairShare") (not $values.fairShare.enabled) }}
{{- fail "scheduler.pluginArgs.FairShare is set, and scheduler.fairShare.enabled is not: set it, or leave the arguments out" }}
{{- end }}
{{- if .Values.pools }}
{{- if hasKey $pluginArgs "NodeAffinity" }}
{{- fail "scheduler.pluginArgs.NodeAffinity: it follows from pools; leave it out" }}
{{- end }}
{{- $pluginArgs = merge (dict "NodeAffinity" (fromYaml (include "lockstep.poolAffinity" .))) $pluginArgs }}
{{- end }}
{{- if or $values.fairShare.enabled $pluginArgs }}
{{- $config := fromYaml $text }}
{{- range $config.profiles }}
{{- if $values.fairShare.enabled }}
{{- $_ := set .plugins.multiPoint "enabled" (append .plugins.multiPoint.enabled (dict "name" "FairShare")) }}
{{- end }}
{{- $rest := list }}
{{- range default list .pluginConfig }}
{{- if not (hasKey $pluginArgs .name) }}
{{- $rest = append $rest . }}
{{- end }}
{{- end }}
{{- range $name, $args := $pluginArgs }}
{{- $rest = append $rest (dict "name" $name "args" $args) }}
{{- end }}
{{- $_ := set . "pluginConfig" $rest }}
{{- end }}
{{- $text = toYaml $config }}
{{- end }}
{{- $text }}
{{- end }}
{{- end }}

{{/*
The arguments of NodeAffinity that keep all pods of a profile to the nodes of the pools.
*/}}
{{- define "lockstep.poolAffinity" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: NodeAffinityArgs
addedAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    {{- range .Values.pools }}
    {{- range $label, $value := .nodeSelector }}
    - matchExpressions:
      - {key: {{ quote $label }}, operator: In, values: [{{ quote $value }}]}
    {{- end }}
    {{- end }}
{{- end }}
