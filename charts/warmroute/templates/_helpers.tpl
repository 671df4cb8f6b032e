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

{{/* The Secrets with a token, as NAME/KEY, by their use: those that values name, or the chart's own. */}}
{{- define "warmroute.tokens" -}}
{{- $name := include "warmroute.fullname" . -}}
{{- $tokens := dict "admin" (default (printf "%s-admin-token" $name) .Values.admin.tokenSecret) -}}
{{- if gt (int .Values.routers) 1 -}}{{- $_ := set $tokens "peers" (default (printf "%s-peers-token" $name) .Values.peers.tokenSecret) -}}{{- end -}}
{{- if and .Values.sidecar.enabled .Values.sidecar.tokenSecret -}}{{- $_ := set $tokens "index" .Values.sidecar.tokenSecret -}}{{- end -}}
{{- with .Values.replicas.tokenSecret -}}{{- $_ := set $tokens "replicas" . -}}{{- end -}}
{{- range $use, $secret := $tokens -}}
{{- if not (contains "/" $secret) -}}{{- $_ := set $tokens $use (printf "%s/token" $secret) -}}{{- end -}}
{{- end -}}
{{- toYaml $tokens -}}
{{- end -}}

{{/* The Secrets with certificates that values name, by the folder that they are mounted in: /etc/warmroute-NAME. */}}
{{- define "warmroute.certificates" -}}
{{- $certificates := dict "extproc-tls" .Values.extproc.tlsSecret "extproc-clients" .Values.extproc.clientCASecret "replicas-tls" .Values.replicas.tlsSecret "replicas-ca" .Values.replicas.caSecret -}}
{{- if gt (int .Values.routers) 1 -}}{{- $_ := set $certificates "peers-tls" .Values.peers.tlsSecret -}}{{- end -}}
{{- if .Values.sidecar.enabled -}}{{- $_ := set $certificates "index-tls" .Values.sidecar.tlsSecret -}}{{- end -}}
{{- range $folder, $secret := $certificates -}}
{{- if not $secret -}}{{- $_ := unset $certificates $folder -}}{{- end -}}
{{- end -}}
{{- toYaml $certificates -}}
{{- end -}}

{{/* The settings of a certificate that is mounted in a folder. */}}
{{- define "warmroute.certificate" -}}
{{- toYaml (dict "cert_file" (printf "/etc/warmroute-%s/tls.crt" .) "key_file" (printf "/etc/warmroute-%s/tls.key" .)) -}}
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
{{- $_ := set $own "kubernetes" (dict "pool" .Values.pool.name "namespace" (include "warmroute.pool.namespace" .)) -}}
{{- $_ := set $own "filter" (dict "picker" true "always_pick" true) -}}
{{- end -}}
{{- $tls := dict -}}
{{- if .Values.extproc.tlsSecret -}}{{- $tls = include "warmroute.certificate" "extproc-tls" | fromYaml -}}
{{- else if .Values.pool.name -}}{{- $tls = dict "self_signed" true -}}
{{- end -}}
{{- if .Values.extproc.clientCASecret -}}{{- $_ := set $tls "client_ca_file" "/etc/warmroute-extproc-clients/ca.crt" -}}{{- end -}}
{{- if $tls -}}{{- $_ := set $own "tls" $tls -}}{{- end -}}
{{- $fleet := dict -}}
{{- $secure := dict -}}
{{- with .Values.replicas -}}
{{- if .tlsSecret -}}{{- $secure = include "warmroute.certificate" "replicas-tls" | fromYaml -}}{{- end -}}
{{- if .caSecret -}}{{- $_ := set $secure "ca_file" "/etc/warmroute-replicas-ca/ca.crt" -}}{{- end -}}
{{- if $secure -}}{{- $_ := set $fleet "tls" (set $secure "enabled" true) -}}{{- end -}}
{{- if .tokenSecret -}}{{- $_ := set $fleet "token_file" "/etc/warmroute-replicas/token" -}}{{- end -}}
{{- end -}}
{{- if $fleet -}}{{- $_ := set $own "fleet" $fleet -}}{{- end -}}
{{- if gt (int .Values.routers) 1 -}}
{{- $peers := dict "listen" (printf "0.0.0.0:%d" (int .Values.peers.port)) "dns" (printf "%s-peers:%d" (include "warmroute.fullname" .) (int .Values.peers.port)) "token_file" "/etc/warmroute-peers/token" -}}
{{- if .Values.peers.tlsSecret -}}{{- $_ := set $peers "tls" (merge (include "warmroute.certificate" "peers-tls" | fromYaml) (dict "enabled" true "ca_file" "/etc/warmroute-peers-tls/ca.crt")) -}}{{- end -}}
{{- $_ := set $own "peers" $peers -}}
{{- end -}}
{{- if .Values.sidecar.enabled -}}
{{- $service := dict "listen" "0.0.0.0:9003" -}}
{{- if .Values.sidecar.tokenSecret -}}{{- $_ := set $service "token_file" "/etc/warmroute-index/token" -}}{{- end -}}
{{- if .Values.sidecar.tlsSecret -}}{{- $_ := set $service "tls" (merge (include "warmroute.certificate" "index-tls" | fromYaml) (dict "client_ca_file" "/etc/warmroute-index-tls/ca.crt")) -}}{{- end -}}
{{- if not (or .Values.sidecar.tokenSecret .Values.sidecar.tlsSecret (has "index_service" (dig "insecure" list (default dict .Values.config)))) -}}
{{- fail "sidecar.enabled opens the index to the network: name sidecar.tlsSecret or sidecar.tokenSecret, or list index_service under config.insecure" -}}
{{- end -}}
{{- $_ := set $own "index_service" $service -}}
{{- end -}}
{{- $config := mustMergeOverwrite $own (deepCopy (default dict .Values.config)) -}}
{{- if not (or (dig "kubernetes" "pool" "" $config) (dig "fleet" "replicas" list $config) (dig "fleet" "dns" list $config)) -}}
{{- fail "there is no source of replicas: name an InferencePool in pool.name, or list config.fleet.replicas or config.fleet.dns" -}}
{{- end -}}
{{- with $config.tls -}}
{{- if and .client_ca_file (not (or .cert_file .self_signed)) -}}
{{- fail "extproc.clientCASecret: clients' certificates need TLS: name extproc.tlsSecret, too" -}}
{{- end -}}
{{- end -}}
{{- $filter := default dict $config.filter -}}
{{- if and $filter.always_pick (or (eq (toString $filter.mode) "shadow") (and (hasKey $filter "share") (ne (toString $filter.share) "100"))) -}}
{{- fail "a pool's gateway may need every hint, so config.filter.mode and config.filter.share are refused: set config.filter.always_pick: false if it balances requests without a pick by itself" -}}
{{- end -}}
{{- range $field, $at := dict "config.listen" $config.listen "config.health.listen" $config.health.listen -}}
{{- if not (regexMatch "^(0\\.0\\.0\\.0|\\[::\\])?:[1-9][0-9]*$" (toString $at)) -}}
{{- fail (printf "%s: %q is not reached from other pods, or its port is not known: write 0.0.0.0:PORT" $field (toString $at)) -}}
{{- end -}}
{{- end -}}
{{- range $field, $port := dict "index_service" (ternary 9003 0 .Values.sidecar.enabled) "peers" (ternary (int .Values.peers.port) 0 (gt (int .Values.routers) 1)) -}}
{{- $at := toString (dig $field "listen" "" $config) -}}
{{- if and $port (not (hasSuffix (printf ":%d" $port) $at)) -}}
{{- fail (printf "config.%s.listen: %q is not at port %d, which the chart opens%s" $field $at $port (ternary ": set peers.port instead" "" (eq $field "peers"))) -}}
{{- end -}}
{{- end -}}
{{- $ports := dict -}}
{{- range $field, $section := dict "config.listen" $config "config.health.listen" $config.health "config.admin.listen" $config.admin "the index service" $config.index_service "peers.port" (default dict $config.peers) -}}
{{- $port := include "warmroute.port" (toString $section.listen) -}}
{{- if and $port (hasKey $ports $port) -}}
{{- fail (printf "%s and %s share port %s" (get $ports $port) $field $port) -}}
{{- end -}}
{{- $_ := set $ports $port $field -}}
{{- end -}}
{{- $room := include "warmroute.blocks" . | int64 -}}
{{- if $room -}}
{{- $index := default dict $config.index -}}
{{- if not (hasKey $index "max_blocks") -}}
{{- $_ := set $config "index" (merge (dict "max_blocks" $room) $index) -}}
{{- else if and (regexMatch "^[0-9.e+]+$" (toString $index.max_blocks)) (gt (int64 $index.max_blocks) (mul 4 $room)) -}}
{{- fail (printf "config.index.max_blocks: %d blocks do not fit resources.limits.memory of %s: at most %d do, and %d leave half of it to the rest" (int64 $index.max_blocks) (toString .Values.resources.limits.memory) (mul 4 $room) $room) -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The port of a listening address. */}}
{{- define "warmroute.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{/* The seconds that a pod has to end: lame_duck, the 10 s in which it drains, and 15 to spare. */}}
{{- define "warmroute.grace" -}}
{{- $seconds := 25.0 -}}
{{- range regexFindAll "[0-9.]+(h|ms?|s)" (default "5s" (include "warmroute.config" . | fromYaml).lame_duck | toString) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $seconds = addf $seconds (mulf (trimSuffix $unit . | float64) (get (dict "h" 3600 "m" 60 "s" 1 "ms" 0.001) $unit | float64)) -}}
{{- end -}}
{{- ceil $seconds -}}
{{- end -}}

{{/* The blocks of the index that take half of the memory limit, of 48 bytes for itself and as many for those of several cache groups; the router's default at most, 0 without a limit. */}}
{{- define "warmroute.blocks" -}}
{{- $limit := dig "limits" "memory" "" (default dict .Values.resources) | toString -}}
{{- $number := regexFind "^[0-9.]+([eE][+-]?[0-9]+)?" $limit -}}
{{- $units := dict "m" 0.001 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "" 1 -}}
{{- $unit := trimPrefix $number $limit -}}
{{- if and $number (hasKey $units $unit) -}}
{{- min 67108864 (div (mulf (float64 $number) (float64 (get $units $unit)) | int64) 192) -}}
{{- else -}}0{{- end -}}
{{- end -}}

{{/* A hash of the settings that a router takes at its start alone: another one is another pod. The router reads all others from the file. */}}
{{- define "warmroute.restart" -}}
{{- $config := include "warmroute.config" . | fromYaml -}}
{{- $sections := pick $config "listen" "lame_duck" "tls" "health" "admin" "kubernetes" "index" "index_service" "warm_up" "peers" "tracing" -}}
{{- $filter := pick (default dict $config.filter) "trace_file" "trace_file_bytes" -}}
{{- $tokens := pick (default dict $config.tokens) "keep_texts" -}}
{{- $xds := pick (default dict $config.xds) "listen" "tls" "state" -}}
{{- list $sections $filter $tokens $xds | toYaml | sha256sum -}}
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
