{{/*
The sidecar as one native sidecar container (an item of initContainers with restartPolicy Always).

Takes a dict:
  root      $ of a chart that depends on this one, with stilltrue.detector.enabled: false and stilltrue.sidecar.detector set
  service   the name of the service, as it shall stand in verdicts
  inbound   port that takes the calls from outside (what the Service's targetPort names)
  app       port on loopback where the program itself listens
  outbound  port on loopback that the program calls instead of others; 0: none
  upstream  where calls that go out are sent: HOST:PORT, or authority-routing (by the name the program called)
  workers   how many calls the program works on at once; 0: not known
  labels    labels of the process, for the detector's scopes, as a dict; may be left out
  tlsVolume name of a volume of the pod with tls.crt, tls.key and ca.crt for the detector; empty: no TLS
*/}}
{{- define "stilltrue.sidecar" -}}
{{- $own := not (hasKey .root.Values "stilltrue") -}}
{{- $all := ternary .root.Values (get .root.Values "stilltrue") $own -}}
{{- $chart := ternary .root.Chart (dig "stilltrue" "Chart" dict (default dict .root.Subcharts)) $own -}}
{{- $detector := $all.sidecar.detector -}}
{{- if not $detector -}}
{{- if not $own -}}
{{- fail "stilltrue.sidecar needs stilltrue.sidecar.detector in the values: where the detector listens, as HOST:PORT" -}}
{{- end -}}
{{- $detector = include "stilltrue.agentsAddress" .root -}}
{{- end -}}
{{- $inbound := required "stilltrue.sidecar needs inbound: the port that takes the calls from outside" .inbound -}}
- name: stilltrue
  image: {{ include "stilltrue.image" (dict "image" $all.image "appVersion" $chart.AppVersion "global" .root.Values.global) }}
  imagePullPolicy: {{ $all.image.pullPolicy }}
  restartPolicy: Always
  args:
    - sidecar
    - --service={{ required "stilltrue.sidecar needs service: its name in verdicts" .service }}
    - --inbound=0.0.0.0:{{ $inbound }}
    - --app=127.0.0.1:{{ required "stilltrue.sidecar needs app: the port where the program listens" .app }}
    {{- if .outbound }}
    - --outbound=127.0.0.1:{{ .outbound }}
    - --upstream={{ .upstream | default "authority-routing" }}
    {{- end }}
    {{- if .workers }}
    - --workers={{ .workers }}
    {{- end }}
    {{- range $label, $value := .labels }}
    - --label={{ $label }}={{ $value }}
    {{- end }}
    - --detector={{ $detector }}
    {{- include "stilltrue.sidecarCommon" (dict "all" $all "tlsVolume" .tlsVolume) | nindent 4 }}
  {{- include "stilltrue.sidecarRest" (dict "all" $all "tlsVolume" .tlsVolume) | nindent 2 }}
  {{- include "stilltrue.sidecarProbe" (dict "all" $all "inbound" $inbound) | nindent 2 }}
  ports:
    - name: st-inbound
      containerPort: {{ $inbound }}
    - name: st-admin
      containerPort: {{ $all.sidecar.adminPort }}
{{- end -}}

{{- define "stilltrue.sidecarCommon" -}}
- --admin-port={{ .all.sidecar.adminPort }}
{{- if ne .all.sidecar.adminHost "127.0.0.1" }}
- --admin-host={{ .all.sidecar.adminHost }}
{{- end }}
{{- if .tlsVolume }}
- --tls-ca-file=/stilltrue-tls/ca.crt
- --tls-cert-file=/stilltrue-tls/tls.crt
- --tls-key-file=/stilltrue-tls/tls.key
{{- end }}
{{- with .all.sidecar.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "stilltrue.sidecarRest" -}}
env:
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  {{- if ne (int .all.sidecar.adminPort) 7602 }}
  {{- /* For `stilltrue sidecar --check` in the container. */}}
  - name: STILLTRUE_SIDECAR_ADMIN_PORT
    value: {{ .all.sidecar.adminPort | quote }}
  {{- end }}
  {{- with .all.sidecar.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .all.sidecar.resources | nindent 2 }}
securityContext:
  {{- toYaml .all.sidecar.securityContext | nindent 2 }}
{{- if .tlsVolume }}
volumeMounts:
  - name: {{ .tlsVolume }}
    mountPath: /stilltrue-tls
    readOnly: true
{{- end }}
{{- end -}}

{{/* The program's containers start once the sidecar takes calls. Its admin endpoint is out of the kubelet's reach on loopback. */}}
{{- define "stilltrue.sidecarProbe" -}}
startupProbe:
  {{- if eq .all.sidecar.adminHost "127.0.0.1" }}
  tcpSocket:
    port: {{ .inbound }}
  {{- else }}
  httpGet:
    path: /healthz
    port: {{ .all.sidecar.adminPort }}
  {{- end }}
  periodSeconds: 1
  failureThreshold: 60
{{- end -}}

{{/* What the injector puts in; the pod's annotations add service, ports, upstream and workers. */}}
{{- define "stilltrue.injected" -}}
name: stilltrue
image: {{ include "stilltrue.image" (dict "image" .Values.image "appVersion" .Chart.AppVersion "global" .Values.global) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
restartPolicy: Always
args:
  - sidecar
  - --detector={{ include "stilltrue.detectorFor" . }}
  {{- include "stilltrue.sidecarCommon" (dict "all" .Values) | nindent 2 }}
{{ include "stilltrue.sidecarRest" (dict "all" .Values) }}
{{ include "stilltrue.sidecarProbe" (dict "all" .Values "inbound" "st-inbound") }}
ports:
  - name: st-admin
    containerPort: {{ .Values.sidecar.adminPort }}
{{- end -}}

{{/* What the injector puts in for the Python agent: an init container that copies it, and where its detector is. */}}
{{- define "stilltrue.injectedAgent" -}}
detector: {{ include "stilltrue.detectorFor" . }}
container:
  name: stilltrue-agent
  image: {{ include "stilltrue.image" (dict "image" .Values.image "appVersion" .Chart.AppVersion "global" .Values.global) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [python, -m, stilltrue, copy, /stilltrue-agent]
  resources:
    {{- toYaml .Values.sidecar.resources | nindent 4 }}
  securityContext:
    {{- toYaml .Values.sidecar.securityContext | nindent 4 }}
  volumeMounts:
    - name: stilltrue-agent
      mountPath: /stilltrue-agent
{{- end -}}

{{/* Where the sidecars of this release find the detector. */}}
{{- define "stilltrue.detectorFor" -}}
{{- if .Values.sidecar.detector -}}
{{- .Values.sidecar.detector -}}
{{- else if .Values.detector.enabled -}}
{{- include "stilltrue.agentsAddress" . -}}
{{- else -}}
{{- fail "sidecar.detector is needed where detector.enabled is false: where the detector listens, as HOST:PORT" -}}
{{- end -}}
{{- end -}}
