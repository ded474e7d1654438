{{/* How the parts of a fleet past one detector reach Kafka: arguments, and the file with settings of its client. */}}

{{- define "stilltrue.kafkaArgs" -}}
{{- $kafka := .Values.scaleOut.kafka -}}
- --kafka={{ required "scaleOut.kafka.servers is needed: HOST:PORT,... of Kafka" $kafka.servers }}
- --kafka-topics={{ $kafka.topics }}
{{- if $kafka.configSecret }}
- --kafka-config=/kafka/client.properties
{{- end }}
{{- end -}}

{{- define "stilltrue.kafkaMount" -}}
{{- if .Values.scaleOut.kafka.configSecret -}}
- name: kafka
  mountPath: /kafka
  readOnly: true
{{- end -}}
{{- end -}}

{{- define "stilltrue.kafkaVolume" -}}
{{- with .Values.scaleOut.kafka.configSecret -}}
- name: kafka
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end -}}
{{- end -}}

{{/* What the coordinator may reach beside: names, and Kafka's ports; as JSON. */}}
{{- define "stilltrue.kafkaEgress" -}}
{{- $ports := list -}}
{{- $servers := .Values.scaleOut.kafka.servers -}}
{{- if contains "://" $servers -}}
{{- $ports = list (dict "port" 443 "protocol" "TCP") -}}
{{- else -}}
{{- range splitList "," $servers -}}
{{- $ports = append $ports (dict "port" (splitList ":" . | last | int) "protocol" "TCP") -}}
{{- end -}}
{{- end -}}
{{- $names := list (dict "port" 53 "protocol" "UDP") (dict "port" 53 "protocol" "TCP") -}}
{{- toJson (list (dict "ports" (concat $names ($ports | uniq)))) -}}
{{- end -}}
