{{/* Names, labels and the image: what every template of this chart uses. */}}

{{- define "stilltrue.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "stilltrue.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "stilltrue.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that never change: what selectors may use. Takes a dict of root and component. */}}
{{- define "stilltrue.selectorLabels" -}}
app.kubernetes.io/name: {{ include "stilltrue.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "stilltrue.labels" -}}
{{ include "stilltrue.selectorLabels" . }}
app.kubernetes.io/part-of: stilltrue
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of pods: without versions, so that an upgrade of the chart alone restarts nothing. */}}
{{- define "stilltrue.podLabels" -}}
{{ include "stilltrue.selectorLabels" . }}
app.kubernetes.io/part-of: stilltrue
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The image, from a dict of image (the values), appVersion and global. */}}
{{- define "stilltrue.image" -}}
{{- $registry := dig "imageRegistry" "" (default dict .global) | default .image.registry -}}
{{- $name := ternary (printf "%s/%s" $registry .image.repository) .image.repository (ne $registry "") -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .appVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "stilltrue.serviceAccountName" -}}
{{- ternary (default (include "stilltrue.fullname" .) .Values.serviceAccount.name) (default "default" .Values.serviceAccount.name) .Values.serviceAccount.create -}}
{{- end -}}

{{/* Where agents find the detector: its Service; with a standby both pods, of which only the one that serves accepts connections. */}}
{{- define "stilltrue.detectorAddress" -}}
{{- if .Values.standby.enabled -}}
{{- $fullname := include "stilltrue.fullname" . -}}
{{- $rest := printf "%s-headless.%s.svc.%s:7600" $fullname .Release.Namespace .Values.clusterDomain -}}
{{- printf "%s-0.%s,%s-standby-0.%s" $fullname $rest $fullname $rest -}}
{{- else -}}
{{- printf "%s.%s.svc.%s:%d" (include "stilltrue.fullname" .) .Release.Namespace .Values.clusterDomain (int .Values.service.grpcPort) -}}
{{- end -}}
{{- end -}}

{{/* Where agents connect: to the detector, or past one detector to the collectors. */}}
{{- define "stilltrue.agentsAddress" -}}
{{- if .Values.scaleOut.enabled -}}
{{- printf "%s-collectors.%s.svc.%s:%d" (include "stilltrue.fullname" .) .Release.Namespace .Values.clusterDomain (int .Values.service.grpcPort) -}}
{{- else -}}
{{- include "stilltrue.detectorAddress" . -}}
{{- end -}}
{{- end -}}

{{- define "stilltrue.tlsSecret" -}}
{{- if .Values.tls.existingSecret -}}
{{- .Values.tls.existingSecret -}}
{{- else if .Values.certificate.enabled -}}
{{- printf "%s-tls" (include "stilltrue.fullname" .) -}}
{{- else if .Values.certificate.selfSigned -}}
{{- printf "%s-tls" (include "stilltrue.fullname" .) -}}
{{- else -}}
{{- fail "tls.enabled needs tls.existingSecret, certificate.enabled or certificate.selfSigned" -}}
{{- end -}}
{{- end -}}

{{- define "stilltrue.injectorSecret" -}}
{{- if .Values.injector.existingSecret -}}
{{- .Values.injector.existingSecret -}}
{{- else if .Values.certificate.enabled -}}
{{- printf "%s-injector-tls" (include "stilltrue.fullname" .) -}}
{{- else if .Values.certificate.selfSigned -}}
{{- printf "%s-injector-tls" (include "stilltrue.fullname" .) -}}
{{- else -}}
{{- fail "injector.enabled needs injector.existingSecret and injector.caBundle, certificate.enabled or certificate.selfSigned" -}}
{{- end -}}
{{- end -}}

{{/* Refuses values that would leave the detector open, or nobody able to connect, without a word. */}}
{{- define "stilltrue.checkAccess" -}}
{{- $tls := .Values.tls -}}
{{- if not $tls.enabled -}}
{{- if $tls.clientAuth -}}
{{- fail "tls.clientAuth needs tls.enabled: without TLS no client is asked for a certificate" -}}
{{- end -}}
{{- if $tls.existingSecret -}}
{{- fail "tls.existingSecret needs tls.enabled: without it the detector speaks plaintext" -}}
{{- end -}}
{{- if .Values.scaleOut.collectors.tlsSecret -}}
{{- fail "scaleOut.collectors.tlsSecret needs tls.enabled: without it collectors speak plaintext" -}}
{{- end -}}
{{- if $tls.rolesSecret -}}
{{- fail "tls.rolesSecret needs tls.enabled: without TLS every client may do everything" -}}
{{- end -}}
{{- if not .Values.detector.allowPlaintext -}}
{{- fail "detector.allowPlaintext: false needs tls.enabled: the detector would not start" -}}
{{- end -}}
{{- else if and $tls.clientAuth .Values.certificate.selfSigned (not $tls.existingSecret) -}}
{{- fail "tls.clientAuth needs tls.existingSecret or certificate.enabled: certificate.selfSigned keeps no key that could sign the clients' certificates" -}}
{{- end -}}
{{- end -}}

{{/* Refuses two ports of the Service that are the same: the API server would refuse it halfway through an installation. */}}
{{- define "stilltrue.checkPorts" -}}
{{- if eq (int .Values.service.grpcPort) (int .Values.service.httpPort) -}}
{{- fail (printf "service.grpcPort and service.httpPort are both %d: the Service needs two ports" (int .Values.service.grpcPort)) -}}
{{- end -}}
{{- end -}}

{{/* The release's own pods, as a peer of a NetworkPolicy. */}}
{{- define "stilltrue.ownPods" -}}
podSelector:
  matchLabels:
    app.kubernetes.io/name: {{ include "stilltrue.name" . }}
    app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Who may connect: the peers of the values and the release's own pods, or every pod. Takes a dict of root and peers. */}}
{{- define "stilltrue.peers" -}}
{{- if .peers -}}
{{- toYaml (append .peers (include "stilltrue.ownPods" .root | fromYaml)) -}}
{{- else -}}
- namespaceSelector: {}
{{- end -}}
{{- end -}}

{{/* The claim of the detector's volume. */}}
{{- define "stilltrue.dataClaim" -}}
{{- $fullname := include "stilltrue.fullname" . -}}
{{- default (ternary (printf "%s-data" $fullname) (printf "data-%s-0" $fullname) .Values.standby.enabled) .Values.persistence.existingClaim -}}
{{- end -}}

{{/*
Names in the detector's certificate beside its Service's, as JSON: those asked for, with a standby those of both pods, and with
collectors theirs. What the chart signs itself has them all, since it is kept when they are turned on later.
*/}}
{{- define "stilltrue.extraDnsNames" -}}
{{- $names := .Values.certificate.extraDnsNames -}}
{{- if or .Values.standby.enabled .Values.certificate.selfSigned -}}
{{- $names = append $names (printf "*.%s-headless.%s.svc.%s" (include "stilltrue.fullname" .) .Release.Namespace .Values.clusterDomain) -}}
{{- end -}}
{{- if or .Values.scaleOut.enabled .Values.certificate.selfSigned -}}
{{- $names = append $names (printf "%s-collectors.%s.svc.%s" (include "stilltrue.fullname" .) .Release.Namespace .Values.clusterDomain) -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The job by which Prometheus knows the detector: a ServiceMonitor makes it the Service's name. */}}
{{- define "stilltrue.job" -}}
{{- default (include "stilltrue.fullname" .) .Values.prometheusRule.job -}}
{{- end -}}

{{/* Where pods of a part may run, from its values. */}}
{{- define "stilltrue.scheduling" -}}
{{- range $name := list "priorityClassName" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
{{- with get $.values $name }}
{{ $name }}:
  {{- if kindIs "string" . }} {{ . }}{{ else }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
A Secret with a certificate that the chart signs itself, from a dict of root, component and service (its name and, with -tls, the
Secret's). What an earlier release has made stays: a new authority would be news to everybody who trusts the old one.
*/}}
{{- define "stilltrue.selfSigned" -}}
{{- $secret := printf "%s-tls" .service -}}
{{- $there := lookup "v1" "Secret" .root.Release.Namespace $secret -}}
{{- $data := dict -}}
{{- if $there -}}
{{- $data = $there.data -}}
{{- else -}}
{{- $names := list -}}
{{- range list (printf ".%s.svc.%s" .root.Release.Namespace .root.Values.clusterDomain) (printf ".%s.svc" .root.Release.Namespace) (printf ".%s" .root.Release.Namespace) "" -}}
{{- $names = append $names (printf "%s%s" $.service .) -}}
{{- end -}}
{{- $ca := genCA (printf "%s CA" .service | trunc 64) 3650 -}}
{{- $made := genSignedCert (printf "%s.%s.svc" .service .root.Release.Namespace | trunc 64) nil (concat $names .extra) 3650 $ca -}}
{{- $data = dict "ca.crt" ($ca.Cert | b64enc) "tls.crt" ($made.Cert | b64enc) "tls.key" ($made.Key | b64enc) -}}
{{- end -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ $secret }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "stilltrue.labels" (dict "root" .root "component" .component) | nindent 4 }}
type: kubernetes.io/tls
data:
  {{- toYaml $data | nindent 2 }}
{{- end -}}

{{/* Things in a pod that is restricted and speaks to nobody but its peers. */}}
{{- define "stilltrue.podDefaults" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A number as people write it: Helm reads 16777216 as 1.6777216e+07. */}}
{{- define "stilltrue.plain" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- printf "%.0f" . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* One scope's expectation as `serve --expect` takes it: service:NAME is of the release's namespace. */}}
{{- define "stilltrue.expected" -}}
{{- if kindIs "slice" .expected -}}
{{- $names := list -}}
{{- range .expected -}}
{{- if and (hasPrefix "service:" .) (not (contains "/" .)) -}}
{{- $names = append $names (printf "service:%s/%s" $.root.Release.Namespace (trimPrefix "service:" .)) -}}
{{- else -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- join "," $names -}}
{{- else -}}
{{- include "stilltrue.plain" .expected -}}
{{- end -}}
{{- end -}}

{{/* The namespaces whose pods get Events, with commas; empty when none do. */}}
{{- define "stilltrue.eventNamespaces" -}}
{{- if .Values.detector.kubernetesEvents.enabled -}}
{{- join "," (default (list .Release.Namespace) .Values.detector.kubernetesEvents.namespaces | uniq | sortAlpha) -}}
{{- end -}}
{{- end -}}

{{/* Whether the detector calls the API server: then it has a token, and a way there. */}}
{{- define "stilltrue.callsKubernetes" -}}
{{- print (include "stilltrue.expectedNamespaces" .) (include "stilltrue.eventNamespaces" .) (ternary "standby" "" .Values.standby.enabled) -}}
{{- end -}}

{{/* The namespaces whose Services are expected, with commas; empty when none are. */}}
{{- define "stilltrue.expectedNamespaces" -}}
{{- $found := list -}}
{{- range $scope, $expected := .Values.detector.expect -}}
{{- range splitList "," (include "stilltrue.expected" (dict "root" $ "expected" $expected)) -}}
{{- if hasPrefix "service:" . -}}
{{- $found = append $found (first (splitList "/" (trimPrefix "service:" .))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- join "," ($found | uniq | sortAlpha) -}}
{{- end -}}
