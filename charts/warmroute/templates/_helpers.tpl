{{- define "warmroute.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- else -}}{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "warmroute.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "warmroute.labels" -}}
{{ include "warmroute.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "warmroute.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create -}}{{ include "warmroute.fullname" . }}
{{- else -}}default
{{- end -}}
{{- end -}}

{{- define "warmroute.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "warmroute.pool.namespace" -}}
{{ default .Release.Namespace .Values.pool.namespace }}
{{- end -}}

{{/* The Secrets with a token, by their use: the Secrets that values name, or the chart's own. */}}
{{- define "warmroute.tokens" -}}
admin: {{ default (printf "%s-admin-token" (include "warmroute.fullname" .)) .Values.admin.tokenSecret }}
{{- if gt (int .Values.routers) 1 }}
peers: {{ default (printf "%s-peers-token" (include "warmroute.fullname" .)) .Values.peers.tokenSecret }}
{{- end }}
{{- if and .Values.sidecar.enabled .Values.sidecar.tokenSecret }}
index: {{ .Values.sidecar.tokenSecret }}
{{- end }}
{{- end -}}

{{/* The router's configuration file: the chart's settings, and values.config, which overrides them. */}}
{{- define "warmroute.config" -}}
{{- $own := dict
  "listen" "0.0.0.0:9002"
  "health" (dict "listen" "0.0.0.0:9006")
  "admin" (dict "listen" "127.0.0.1:9090" "token_file" "/etc/warmroute-admin/token")
  "xds" (dict "listen" "")
  "index_service" (dict "listen" "") -}}
{{- if .Values.pool.name -}}
{{- $_ := set $own "kubernetes" (dict "pool" .Values.pool.name "namespace" (include "warmroute.pool.namespace" .) "version" .Values.pool.version) -}}
{{- $_ := set $own "tls" (dict "self_signed" true) -}}
{{- $_ := set $own "filter" (dict "picker" true "always_pick" true) -}}
{{- end -}}
{{- if gt (int .Values.routers) 1 -}}
{{- $peers := dict "listen" (printf "0.0.0.0:%d" (int .Values.peers.port)) "dns" (printf "%s-peers:%d" (include "warmroute.fullname" .) (int .Values.peers.port)) "token_file" "/etc/warmroute-peers/token" -}}
{{- $_ := set $own "peers" $peers -}}
{{- end -}}
{{- if .Values.sidecar.enabled -}}
{{- $service := dict "listen" "0.0.0.0:9003" -}}
{{- if .Values.sidecar.tokenSecret -}}{{- $_ := set $service "token_file" "/etc/warmroute-index/token" -}}{{- end -}}
{{- if .Values.sidecar.tlsSecret -}}{{- $_ := set $service "tls" (dict "cert_file" "/etc/warmroute-index-tls/tls.crt" "key_file" "/etc/warmroute-index-tls/tls.key" "client_ca_file" "/etc/warmroute-index-tls/ca.crt") -}}{{- end -}}
{{- if not (or .Values.sidecar.tokenSecret .Values.sidecar.tlsSecret (dig "index_service" "insecure" false .Values.config)) -}}
{{- fail "sidecar.enabled opens the index to the network: name sidecar.tlsSecret or sidecar.tokenSecret, or set config.index_service.insecure: true" -}}
{{- end -}}
{{- $_ := set $own "index_service" $service -}}
{{- end -}}
{{- toYaml (mustMergeOverwrite $own (deepCopy .Values.config)) -}}
{{- end -}}

{{/*
kvsub's container, for the pod of a replica in another chart that depends on this one:
  {{ include "warmroute.sidecar" (dict "image" "warmroute:0.1.0" "index" "warmroute:9003" "model" "Qwen/Qwen3-8B" "port" 8000) | nindent 6 }}
vLLM publishes to tcp://*:5557 and replays from tcp://*:5558 in the same pod. "tls" names a volume of that pod with tls.crt, tls.key and ca.crt, "token" one with the file token, which kvsub sends over TLS alone.
*/}}
{{- define "warmroute.sidecar" -}}
- name: kvsub
  image: {{ .image }}
  command: [/usr/local/bin/kvsub]
  args:
  - -replica=$(POD_IP):{{ default 8000 .port }}
  - -model={{ required "warmroute.sidecar needs model" .model }}
  - -hash-scheme={{ default "tokens" .scheme }}
  - -endpoint=tcp://127.0.0.1:5557
  - -replay=tcp://127.0.0.1:5558
  - -metrics=http://127.0.0.1:{{ default 8000 .port }}/metrics
  - -index={{ required "warmroute.sidecar needs index" .index }}
  - -admin=:9091
  {{- if .tls }}
  - -index-tls
  - -index-ca=/etc/warmroute-index-tls/ca.crt
  - -index-cert=/etc/warmroute-index-tls/tls.crt
  - -index-key=/etc/warmroute-index-tls/tls.key
  {{- end }}
  {{- if .token }}
  - -index-token-file=/etc/warmroute-index-token/token
  {{- end }}
  {{- if or .tls .token }}
  volumeMounts:
  {{- with .tls }}
  - {name: {{ . }}, mountPath: /etc/warmroute-index-tls, readOnly: true}
  {{- end }}
  {{- with .token }}
  - {name: {{ . }}, mountPath: /etc/warmroute-index-token, readOnly: true}
  {{- end }}
  {{- end }}
  env:
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  ports:
  - {name: kvsub-admin, containerPort: 9091}
  livenessProbe:
    httpGet: {path: /healthz, port: kvsub-admin}
    periodSeconds: 10
  resources:
    requests: {cpu: 50m, memory: 64Mi}
    limits: {memory: 512Mi}
  securityContext:
    runAsNonRoot: true
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
{{- end -}}
